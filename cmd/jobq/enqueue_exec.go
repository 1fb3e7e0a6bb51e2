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

func (j execJob) params(options jobq.EnqueueOptions) (jobq.EnqueueParams, error) {
	if len(j.Command) == 0 || j.Command[0] == "" {
		return jobq.EnqueueParams{}, usagef("the command is empty")
	}
	for _, word := range j.Command {
		if !utf8.ValidString(word) { // JSON has no other text: it would be replaced
			return jobq.EnqueueParams{}, usagef("not valid UTF-8: %q", word)
		}
	}
	args, err := json.Marshal(j)
	return jobq.EnqueueParams{Args: jobq.RawArgs{Name: programs.ExecKind, JSON: args}, EnqueueOptions: options}, err
}

// enqueueExec adds a job that is a program, or one for each line of standard
// input.
func (a *app) enqueueExec(cmd *cobra.Command, client *jobq.Client, args []string, ndjson bool, options jobq.EnqueueOptions) error {
	if ndjson || (len(args) == 1 && args[0] == "-") {
		return a.enqueueLines(cmd, client, func(line []byte) (jobq.EnqueueParams, error) {
			var job execJob
			if !ndjson {
				words, err := subproc.Split(string(line))
				if err != nil {
					return jobq.EnqueueParams{}, usagef("not a command: %w", err)
				}
				job.Command = words
				return job.params(options)
			}
			if err := decodeLine(line, &job); err != nil {
				return jobq.EnqueueParams{}, usagef("not a command: %w", err)
			}
			return job.params(options)
		})
	}
	job, err := execJob{Command: args}.params(options)
	if err != nil {
		return err
	}
	enqueued, err := client.EnqueueMany(cmd.Context(), []jobq.EnqueueParams{job})
	if err != nil {
		return err
	}
	return a.printEnqueued(cmd.OutOrStdout(), enqueued)
}
