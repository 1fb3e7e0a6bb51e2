package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobq-dev/jobq/metrics"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// doctorEveryMin keeps the checks of jobq doctor, which make connections of their own, from being a load.
const doctorEveryMin = 10 * time.Second

func addMetricsFlag(flags *pflag.FlagSet, address *string) {
	flags.StringVar(address, "metrics-addr", "", "where to serve /metrics, /healthz and /readyz: a port of this machine alone, such as 9400, or 0.0.0.0:9400 for all who reach it, without a password (default none)")
}

// serveMetrics answers at the address until the function returned is called. The
// address is in use when it returns.
func serveMetrics(ctx context.Context, address string, handler http.Handler, log *slog.Logger) (stop func(), err error) {
	if _, err := strconv.ParseUint(address, 10, 16); err == nil {
		address = net.JoinHostPort("127.0.0.1", address)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr %s: %w", address, err)
	}
	server := limitedServer(handler)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "error", err)
		}
	})
	log.Info("serving metrics", "address", listener.Addr().String())
	return func() {
		_ = server.Close() // of connections of scrapers, which come again
		serving.Wait()
	}, nil
}

// workerMetrics serves the figures of a worker, and of the janitor inside if there
// is one.
func workerMetrics(w *worker.Worker, runs *metrics.Runs) http.Handler {
	problems := func() []string { return w.Health().Problems() }
	if j := w.Janitor(); j != nil {
		return metrics.Handler(problems, metrics.NewWorker(w), runs, metrics.NewJanitor(j))
	}
	return metrics.Handler(problems, metrics.NewWorker(w), runs)
}

func newMetricsCommand(a *app) *cobra.Command {
	var address string
	var doctorEvery time.Duration
	var logging logFlags
	command := &cobra.Command{
		Use:   "metrics",
		Short: "Serve the database's figures to Prometheus",
		Long: `Serve the figures of the database at /metrics, for Prometheus: how long jobs wait, how
many there are, and how much jobq doctor finds. One such process for a database is enough; the role jobq_viewer may run it.
Workers and janitors have figures of their own: see their --metrics-addr.

/healthz answers 200 while the process lives, /readyz 200 while the database answers.
docs/metrics.md has alert rules and a dashboard, docs/metrics-reference.md every metric. It ends on SIGTERM or SIGINT.`,
		Example: `  jobq metrics
  jobq metrics --metrics-addr 0.0.0.0:9400`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logging.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if doctorEvery != 0 && doctorEvery < doctorEveryMin {
				return usagef("--doctor-every must be 0 or at least %s", doctorEveryMin)
			}
			client, err := a.uncheckedClient(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Pool().Close()
			database := metrics.NewDatabase(monitor.New(client))
			examined := metrics.NewDoctor(func(context.Context) (metrics.Findings, error) { return a.findings(cmd, client, log) }, doctorEvery)
			stop, err := serveMetrics(cmd.Context(), address, metrics.Handler(database.Problems, database, examined), log)
			if err != nil {
				return err
			}
			defer stop()
			if doctorEvery > 0 {
				examined.Run(cmd.Context())
			}
			<-cmd.Context().Done()
			return nil
		},
	}
	command.Flags().StringVar(&address, "metrics-addr", "127.0.0.1:9400", "address at which to serve; 0.0.0.0:9400 for all who reach it, without a password")
	durationVar(command.Flags(), &doctorEvery, "doctor-every", 10*time.Minute, "how often to make the checks of jobq doctor; 0 for never")
	logging.add(command.Flags())
	return command
}
