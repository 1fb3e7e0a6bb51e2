package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
)

func newEventsCommand(a *app) *cobra.Command {
	var before int64
	limit := 50
	command := &cobra.Command{
		Use:   "events",
		Short: "List what janitors saw and did, newest first",
		Example: `  jobq janitor events
  jobq janitor events --limit 1000 --json
  jobq janitor events --before 4711`,
		Args: exactArgs(0),
		RunE: a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
			events, err := monitor.New(client).Events(cmd.Context(), before, limit)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), events)
			}
			t := newTable(cmd.OutOrStdout(), "EVENT", "AT", "TYPE", "JOB", "QUEUE", "SOURCE", "MESSAGE")
			for _, event := range events {
				job := ""
				if event.JobID != 0 {
					job = strconv.FormatInt(event.JobID, 10)
				}
				t.row(strconv.FormatInt(event.ID, 10), ago(event.At), string(event.Type), job, event.Queue, event.Source, event.Message)
			}
			return t.flush()
		}),
	}
	command.Flags().IntVar(&limit, "limit", limit, "how many, the newest first, up to 1000")
	command.Flags().Int64Var(&before, "before", 0, "only those older than the event with this id")
	a.addJSONFlag(command)
	return command
}
