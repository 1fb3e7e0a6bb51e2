package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
)

// keyOrders are the orders that "queues keys" can list in; nil for that in which the database has them.
var keyOrders = map[string]func(a, b monitor.Key) int{
	"key":       nil,
	"available": func(a, b monitor.Key) int { return cmp.Compare(b.Available, a.Available) },
	"running":   func(a, b monitor.Key) int { return cmp.Compare(b.Running, a.Running) },
	"oldest":    func(a, b monitor.Key) int { return since(a).Compare(since(b)) },
}

// since is since when a key's longest waiting job waits; in the far future where none does.
func since(key monitor.Key) time.Time {
	if key.OldestRunAt == nil {
		return time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	}
	return *key.OldestRunAt
}

func newQueuesKeysCommand(a *app) *cobra.Command {
	query := monitor.KeyQuery{}
	var sorted string
	var limit int
	command := &cobra.Command{
		Use: "keys NAME", Short: "List the partition keys of a queue and their jobs", Args: exactArgs(1),
		Long: `List the partition keys of a queue of which jobs are available or run, and those that are
paused or have a weight. A key is

  ready      when its next job waits for its turn, or for a free slot;
  full       when as many of its jobs run as key_limit allows;
  held       when the next job waits for the key's head (key_order);
  throttled  when as many of its jobs have started as key_rate allows;
  idle       when nothing of it is available;
  paused     when somebody has paused it: jobq queues pause NAME --key KEY.

Up to ` + format.Number(monitor.KeyAvailableMax) + ` available jobs of each key are counted; OLDEST is the longest wait among these.
A key with a WEIGHT starts so many jobs where one without starts one: jobq queues set NAME --key KEY weight=N.

Keys are listed in pages of --limit, in the order in which the database sorts texts.
With another --sort, the first ` + format.Number(monitor.KeysMax) + ` keys behind --after are looked at, and the
first ones of these are shown.`,
		Example: `  jobq queues keys reports
  jobq queues keys reports --sort oldest
  jobq queues keys reports --after customer-17 --limit 1000 --json`,
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			order, known := keyOrders[sorted]
			switch {
			case !known:
				return usagef("--sort must be key, available, running or oldest, not %q", sorted)
			case limit < 1 || limit > monitor.KeysMax: // 0 would mean the default
				return usagef("--limit must be 1 to %d, not %d", monitor.KeysMax, limit)
			}
			query.Queue, query.Limit = args[0], limit
			if order != nil {
				query.Limit = monitor.KeysMax
			}
			keys, err := monitor.New(client).Keys(cmd.Context(), query)
			if err != nil {
				return err
			}
			left := 0
			if order != nil {
				slices.SortStableFunc(keys.Keys, order)
				left = max(len(keys.Keys)-limit, 0)
				keys.Keys = keys.Keys[:len(keys.Keys)-left]
			}
			if len(keys.Keys) == 0 && keys.Next == "" {
				known, err := monitor.New(client).QueueKnown(cmd.Context(), query.Queue)
				switch {
				case err != nil:
					return err
				case !known:
					return unknownQueue(cmd.Context(), client, query.Queue)
				}
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), keys)
			}
			if left > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s more: --limit shows more\n", format.Count(left, "key"))
			}
			return writeKeys(cmd, keys, query)
		}),
	}
	command.Flags().StringVar(&query.After, "after", "", "only keys behind this one")
	command.Flags().IntVar(&limit, "limit", 100, "keys to show, 1 to 1000")
	command.Flags().StringVar(&sorted, "sort", "key", "key, available (most first), running (most first) or oldest (longest wait first)")
	a.addJSONFlag(command)
	return command
}

func writeKeys(cmd *cobra.Command, keys monitor.Keys, query monitor.KeyQuery) error {
	notes := cmd.ErrOrStderr()
	if len(keys.Keys) == 0 {
		fmt.Fprintln(notes, "no such key has a job that is available or runs, or is paused or has a weight")
	} else {
		now := time.Now()
		t := newTable(cmd.OutOrStdout(), "KEY", "STATE", "AVAILABLE", "RUNNING", "OLDEST", "WEIGHT", "WAITS FOR", "PAUSED")
		for _, key := range keys.Keys {
			t.row(key.Key, string(key.State), format.CappedAt(key.Available, monitor.KeyAvailableMax), format.Number(key.Running), format.KeyWait(key, now), format.KeyWeight(key), format.KeyWaitsFor(key, now), format.KeyPause(key, now))
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if keys.Next != "" {
		fmt.Fprintf(notes, "%s looked at; those behind them: jobq queues keys %s --after %s\n", format.Count(query.Limit, "key"),
			printable.Line(format.ShellWord(query.Queue)), printable.Line(format.ShellWord(keys.Next)))
	}
	if keys.MoreRun {
		fmt.Fprintf(notes, "only the %s running jobs were counted that were claimed first\n", format.Number(monitor.KeyRunsMax))
	}
	return nil
}
