package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
)

// action does something to one job and says what came of it.
type action func(ctx context.Context, client *jobq.Client, id int64) (string, error)

func newRequeueCommand(a *app) *cobra.Command {
	return a.newActionCommand("requeue", "Make finished or scheduled jobs available now",
		`A finished job gets at least one more attempt. A running one is refused: cancel it first.`,
		func(ctx context.Context, client *jobq.Client, id int64) (string, error) {
			return "available", client.Requeue(ctx, id)
		})
}

func newCancelCommand(a *app) *cobra.Command {
	return a.newActionCommand("cancel", "Cancel jobs that wait, and ask running ones to stop",
		`A running job is cancelled by its worker, which learns of it at once or with its next
heartbeat. A job that has ended already stays as it is.`,
		func(ctx context.Context, client *jobq.Client, id int64) (string, error) {
			state, err := client.Cancel(ctx, id)
			if state == jobq.Running {
				return "cancel requested", err
			}
			return string(state), err
		})
}

func newDeleteCommand(a *app) *cobra.Command {
	return a.newActionCommand("delete", "Delete jobs that do not run, with their history", "",
		func(ctx context.Context, client *jobq.Client, id int64) (string, error) {
			return "deleted", client.Delete(ctx, id)
		})
}

// newActionCommand makes a command that does the action to each job named. It
// goes on after one that fails; the exit code is of the last that did.
func (a *app) newActionCommand(name, short, long string, act action) *cobra.Command {
	command := &cobra.Command{
		Use:     name + " ID...",
		Short:   short,
		Long:    short + ".\n\n" + long,
		Example: fmt.Sprintf("  jobq %s 4711 4712", name),
		Args:    usageArgs(cobra.MinimumNArgs(1)),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			ids := make([]int64, len(args))
			for i, arg := range args {
				id, err := parseID(arg)
				if err != nil {
					return err
				}
				ids[i] = id
			}
			var failures []error
			for _, id := range ids {
				outcome, err := act(cmd.Context(), client, id)
				if err != nil {
					failures = append(failures, err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%d %s\n", id, outcome)
			}
			return errors.Join(failures...)
		}),
	}
	return command
}
