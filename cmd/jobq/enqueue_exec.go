package main

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/worker/programs"
)

// execJob is the args of a job that says which program to run.
type execJob struct {
	Command []string          `json:"cmd"`
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"cwd,omitempty"`
}

// args are the args of the job.
func (j execJob) args() (jobq.Args, error) {
	if len(j.Command) == 0 || j.Command[0] == "" {
		return nil, usagef("the command is empty")
	}
	for _, word := range j.Command {
		if !utf8.ValidString(word) { // JSON has no other text: it would be replaced
			return nil, usagef("not valid UTF-8: %q", word)
		}
	}
	args, err := json.Marshal(j)
	return jobq.RawArgs{Name: programs.ExecKind, JSON: args}, err
}

// enqueueExecLines adds a job that is a program for each line of standard input.
func (a *app) enqueueExecLines(cmd *cobra.Command, client *jobq.Client, ndjson bool, options jobq.EnqueueOptions) error {
	return a.enqueueLines(cmd, client, func(line []byte) (jobq.EnqueueParams, error) {
		var job execJob
		var err error
		if ndjson {
			err = decodeLine(line, &job)
		} else {
			job.Command, err = subproc.Split(string(line))
		}
		if err != nil {
			return jobq.EnqueueParams{}, usagef("not a command: %w", err)
		}
		args, err := job.args()
		return jobq.EnqueueParams{Args: args, EnqueueOptions: options}, err
	})
}
