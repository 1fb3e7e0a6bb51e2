package programs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/jobq-dev/jobq/worker"
)

// ExecKind is the kind of jobs that say themselves which program to run.
const ExecKind = "exec"

// execArgs are the args of such a job.
type execArgs struct {
	Command []string          `json:"cmd"`
	Env     map[string]string `json:"env"`
	Dir     string            `json:"cwd"`
}

// HandleExec makes the worker run jobs of kind "exec": any program, as the
// worker's user. Whoever may enqueue jobs can then do whatever that user can.
// The command's Args are not used; the job's env and cwd go before its own.
func (p *Programs) HandleExec(command Command, options *worker.HandleOptions) error {
	command.Args, command.literal = []string{"(of the job)"}, true
	if err := command.complete(); err != nil {
		return fmt.Errorf("handler of kind %q: %w", ExecKind, err)
	}
	return p.handleProgram(ExecKind, command, func(ctx context.Context, run worker.ExternalRun, args []byte) error {
		own, err := command.ofJob(args)
		if err != nil {
			return worker.Discard(err)
		}
		return p.runCommand(ctx, own, run, args)
	}, options)
}

// ofJob is the command as the job's args want it.
func (c Command) ofJob(encoded []byte) (Command, error) {
	var args execArgs
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&args); err != nil {
		return c, fmt.Errorf(`args must be {"cmd": ["program", "arg"], "env": {}, "cwd": ""}: %w`, err)
	}
	if len(args.Command) == 0 {
		return c, errors.New("args have no cmd")
	}
	env := make(map[string]string, len(c.Env)+len(args.Env))
	maps.Copy(env, c.Env)
	maps.Copy(env, args.Env)
	c.Args, c.Env = args.Command, env
	if args.Dir != "" {
		c.Dir = args.Dir
	}
	return c, nil
}
