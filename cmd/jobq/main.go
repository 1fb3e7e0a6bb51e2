// Command jobq enqueues, runs and looks after jobs that live in PostgreSQL.
// `jobq help` lists what it does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/tui"
	"github.com/jobq-dev/jobq/worker/programs"
)

// Exit codes, the same for every command. Those that run another command,
// such as `dev --ephemeral`, pass its code on.
const (
	exitOK       = 0
	exitError    = 1
	exitUsage    = 2
	exitNotFound = 3
	exitConflict = 4
	// Of doctor alone.
	exitWarnings = 5
	exitCritical = 6
	// Of those that wait for a job to end.
	exitFailed    = 7
	exitCancelled = 8
	exitNotEnded  = 9
)

func main() {
	programs.MaybeRunShim() // does not return in a process that is to be one
	programs.Conceal()      // the database's password, from programs that a worker runs
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(runApp(ctx, &app{isProcess: true}, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the command without the process: for tests.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return runApp(ctx, &app{}, args, stdin, stdout, stderr)
}

func runApp(ctx context.Context, a *app, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand(a)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	args, err := arguments(root, args)
	if err == nil {
		root.SetArgs(args)
		err = root.ExecuteContext(ctx)
	}
	if err != nil && !errors.Is(err, errSilent) {
		fmt.Fprintf(stderr, "jobq: %s\n", printable.Text(err.Error())) // it can quote a producer
	}
	return exitCode(err)
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitStatus is the exit code of a command that jobq ran for the caller.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// notFoundError is about something that is not there, and is no job.
type notFoundError struct{ error }

func (e notFoundError) Unwrap() error { return e.error }

func notFoundf(format string, args ...any) error { return notFoundError{fmt.Errorf(format, args...)} }

// errSilent ends a command whose output has said it all.
var errSilent = errors.New("silent")

func exitCode(err error) int {
	var usage usageError
	var missing notFoundError
	var status exitStatus
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage), errors.Is(err, jobq.ErrInvalid), errors.Is(err, tui.ErrInvalid):
		return exitUsage
	case errors.As(err, &missing), errors.Is(err, jobq.ErrNotFound):
		return exitNotFound
	case errors.Is(err, jobq.ErrConflict), errors.Is(err, jobq.ErrDuplicate):
		return exitConflict
	}
	return exitError
}
