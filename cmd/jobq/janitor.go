package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/metrics"
)

// janitorOff is the mode in which a worker has no janitor inside.
const janitorOff = "off"

// janitorFlags are the flags of every command that runs a janitor.
type janitorFlags struct {
	scan, ttl, renew, retry time.Duration
	batch                   int
}

func (j *janitorFlags) add(flags *pflag.FlagSet) {
	durationVar(flags, &j.scan, "scan", janitor.DefaultScanInterval, "look for expired leases this often at least, or as often as slow looks allow; 0 never reaps")
	flags.IntVar(&j.batch, "reap-batch", janitor.DefaultReapBatch, "jobs to reap in one statement")
	durationVar(flags, &j.ttl, "leader-ttl", janitor.DefaultLeaderTTL, "how long a silent leader keeps the leadership")
	durationVar(flags, &j.renew, "leader-renew", janitor.DefaultLeaderRenew, "how long a leader is silent at most")
	durationVar(flags, &j.retry, "leader-retry", janitor.DefaultLeaderRetry, "how often the others look whether there is no leader")
}

// zeroIsDefault are the flags whose 0 package janitor takes for the default.
func zeroIsDefault() []string {
	return []string{"reap-batch", "leader-ttl", "leader-renew", "leader-retry"}
}

// config is what the flags say. An interval of 0 means never, to people;
// to package janitor it means the default.
func (j *janitorFlags) config(flags *pflag.FlagSet, mode string, log *slog.Logger) *janitor.Config {
	return &janitor.Config{
		Mode: janitor.Mode(mode), ScanInterval: j.scan, NoReap: flags.Changed("scan") && j.scan == 0, ReapBatch: j.batch,
		LeaderTTL: j.ttl, LeaderRenew: j.renew, LeaderRetry: j.retry, Logger: log,
	}
}

func newJanitorCommand(a *app) *cobra.Command {
	var f janitorFlags
	var log logFlags
	metricsAddr := ""
	mode := string(janitor.ModeLeader)
	command := &cobra.Command{
		Use:   "janitor",
		Short: "Recover jobs of dead workers and start scheduled ones",
		Long: `Run a janitor by itself. Every "jobq worker" has one inside; one of all is the leader
and works, the others wait to take over. docs/recovery.md says what it promises, and
"jobq janitor events" what it has done.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseZero(cmd, zeroIsDefault()...); err != nil {
				return err
			}
			logger, err := log.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			client, err := a.uncheckedClient(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Pool().Close()
			j, err := janitor.New(client, f.config(cmd.Flags(), mode, logger))
			if err != nil {
				return usageError{err}
			}
			if metricsAddr != "" {
				stop, err := serveMetrics(cmd.Context(), metricsAddr, metrics.Handler(nil, metrics.NewJanitor(j)), logger)
				if err != nil {
					return err
				}
				defer stop()
			}
			if err := j.Run(cmd.Context()); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&mode, "mode", mode, "leader: one janitor, elected by a session lock, does all the work; any: whichever starts a pass first does that pass, as always behind a pooler that shares sessions, unless --listen-url gives a direct connection")
	f.add(flags)
	addMetricsFlag(flags, &metricsAddr)
	log.add(flags)
	command.AddCommand(newEventsCommand(a))
	return command
}
