package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq/cmd/jobq/internal/demo"
	"github.com/jobq-dev/jobq/internal/postgres"
	"github.com/jobq-dev/jobq/worker"
)

func newDemoCommand(a *app) *cobra.Command {
	var folder string
	command := &cobra.Command{
		Use:   "demo",
		Short: "See it work: real files, two workers, one of them killed",
		Long: `Compute checksums and make thumbnails of files of this machine, in two worker
processes. Halfway, one is killed with SIGKILL. Its jobs are recovered by the other,
and the demo says how long that took. Without a database at hand it starts a private
PostgreSQL and removes it afterwards.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDemo(cmd, folder) },
	}
	command.Flags().StringVar(&folder, "dir", "", "folder with files to work on (default: some of the system's)")
	command.AddCommand(newDemoWorkerCommand(a))
	return command
}

func (a *app) runDemo(cmd *cobra.Command, folder string) error {
	url, err := a.url()
	listenURL := a.listenAddress()
	if err != nil {
		server, err := postgres.Start(cmd.Context(), postgres.Config{Durable: true, Logger: warnings(cmd)})
		if err != nil {
			return err
		}
		defer stopPostgres(server)
		url, listenURL = server.URL(devDatabase), ""
		fmt.Fprintln(cmd.OutOrStdout(), "started    a private PostgreSQL")
	}
	if err := a.migrateUp(cmd.Context(), url); err != nil {
		return err
	}
	a.databaseURL = url
	client, err := a.client(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Pool().Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return demo.Run(cmd.Context(), demo.Config{
		Client: client, Folder: folder, Out: cmd.OutOrStdout(), Terminal: isTerminal(cmd.OutOrStdout()),
		WorkerCommand: []string{self, "demo", "worker", "--schema", a.schema},
		WorkerEnv:     []string{"JOBQ_DATABASE_URL=" + url, "JOBQ_LISTEN_URL=" + listenURL},
	})
}

// newDemoWorkerCommand is one of the demo's worker processes.
func newDemoWorkerCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "worker", Short: "Run the demo's jobs", Hidden: true, Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := (&logFlags{format: "text", level: "info"}).logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			client, err := a.uncheckedClient(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Pool().Close()
			w, err := worker.New(client, &worker.Config{
				Queues: map[string]worker.QueueConfig{demo.Queue: {Slots: 4}}, Logger: log, Version: version(),
			})
			if err != nil {
				return err
			}
			if err := demo.Handle(w); err != nil {
				return err
			}
			return runWithSignals(cmd.Context(), w)
		},
	}
}
