package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
func HandleExec(w *Worker, command Command) error {
	command.Args = []string{"(of the job)"}
	if err := command.complete(); err != nil {
		return fmt.Errorf("handler of kind %q: %w", ExecKind, err)
	}
	return w.handle(ExecKind, func(ctx context.Context, r *Run) error {
		var args execArgs
		decoder := json.NewDecoder(bytes.NewReader(r.row.Args))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&args); err != nil {
			return Discard(fmt.Errorf(`args must be {"cmd": ["program", "arg"], "env": {}, "cwd": ""}: %w`, err))
		}
		if len(args.Command) == 0 {
			return Discard(errors.New("args have no cmd"))
		}
		own := command
		own.Args, own.literal = args.Command, true
		own.Env = make(map[string]string, len(command.Env)+len(args.Env))
		for _, env := range []map[string]string{command.Env, args.Env} {
			for name, value := range env {
				own.Env[name] = value
			}
		}
		if args.Dir != "" {
			own.Dir = args.Dir
		}
		return own.run(ctx, r)
	})
}
