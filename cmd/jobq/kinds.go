package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/catalogue"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

func newKindsCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "kinds",
		Short: "List kinds of jobs; pause, resume and set them",
		Long: `List kinds of jobs; pause, resume and set them. A kind is paused in all queues at
once: its jobs wait, others go on.

A kind whose workers crash again and again is paused by jobq itself: that is its quarantine.
"jobq settings" says after how many crashes.`,
		Example: `  jobq kinds list
  jobq kinds pause Encode --reason "the codec is broken"
  jobq kinds resume Encode
  jobq kinds set mail queue=mail max_attempts=3`,
	}
	list := &cobra.Command{
		Short: "List kinds with their workers, what waits and what ended of late", Args: exactArgs(0),
		RunE: a.withClient(a.listKinds),
	}
	a.addJSONFlag(list)
	return asList(command, list, newKindsShowCommand(a), newKindsSetCommand(a), newKindsPauseCommand(a), newKindsResumeCommand(a))
}

func (a *app) listKinds(cmd *cobra.Command, _ []string, client *jobq.Client) error {
	kinds, err := monitor.New(client).Kinds(cmd.Context())
	if err != nil {
		return err
	}
	if a.json {
		return writeJSON(cmd.OutOrStdout(), kinds)
	}
	t := newTable(cmd.OutOrStdout(), "KIND", "WORKERS", "AVAILABLE", "COMPLETED", "FAILED", "RETRIED", "CRASHES", "PAUSED", "SETTINGS")
	for _, kind := range kinds {
		paused := ""
		if kind.PausedAt != nil {
			paused = ago(*kind.PausedAt) + " by " + format.By(kind.PausedBy, kind.PauseReason)
		}
		available := format.OrMore(kind.Available, kind.AvailableMore)
		t.row(kind.Name, format.Number(kind.Workers), available, format.Number(kind.Completed), format.Number(kind.Failed), format.Number(kind.Retried),
			format.Number(kind.Crashes), paused, catalogue.KindSet(&kind.KindSettings))
	}
	return t.flush()
}

func newKindsPauseCommand(a *app) *cobra.Command {
	var reason string
	var isNew bool
	command := &cobra.Command{
		Use: "pause KIND", Short: "Let workers claim no more jobs of a kind, in any queue", Args: exactArgs(1),
		Example: `  jobq kinds pause Encode --reason "the codec is broken"
  jobq kinds pause Import --new     # before its first job`,
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			if !isNew {
				if err := kindKnown(cmd.Context(), client, args[0]); err != nil {
					return fmt.Errorf("%w (--new pauses a kind before its first job)", err)
				}
			}
			id, err := a.operator(client).PauseKind(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return a.sayChanged(cmd, changed{Kind: args[0], AuditID: id}, "paused")
		}),
	}
	command.Flags().StringVar(&reason, "reason", "", "why, for others to read")
	command.Flags().BoolVar(&isNew, "new", false, "also a kind of which nothing is known yet")
	a.addJSONFlag(command)
	return command
}

func newKindsResumeCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "resume KIND", Short: "Let workers claim jobs of a kind again, also after its quarantine", Args: exactArgs(1),
		Example: "  jobq kinds resume Encode",
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			id, err := a.operator(client).ResumeKind(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if id == 0 { // so nothing has changed; a misspelt name is told all the same
				if err := kindKnown(cmd.Context(), client, args[0]); err != nil {
					return err
				}
			}
			return a.sayChanged(cmd, changed{Kind: args[0], AuditID: id}, "running")
		}),
	}
	a.addJSONFlag(command)
	return command
}

// kindKnown is an error, with a similar name, unless the kind is one of Monitor.Kinds.
func kindKnown(ctx context.Context, client *jobq.Client, name string) error {
	_, err := kindNamed(ctx, client, name)
	return err
}

// kindNamed is the kind of that name of Monitor.Kinds, or an error with a similar name.
func kindNamed(ctx context.Context, client *jobq.Client, name string) (monitor.Kind, error) {
	kinds, err := monitor.New(client).Kinds(ctx)
	if err != nil {
		return monitor.Kind{}, err
	}
	if at := slices.IndexFunc(kinds, func(kind monitor.Kind) bool { return kind.Name == name }); at >= 0 {
		return kinds[at], nil
	}
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = kind.Name
	}
	return monitor.Kind{}, notFoundf("no kind %q is known: no worker has it, it has no settings, no job of it is available or has ended within the last hour%s",
		name, didYouMean(name, names))
}
