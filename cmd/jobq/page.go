package main

import (
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/printable"
)

// pageWriters are the formats of `jobq list -o`. Data goes to the output, and
// where to go on to the other one.
var pageWriters = map[string]func(*cobra.Command, *jobq.Page) error{
	"table": func(cmd *cobra.Command, page *jobq.Page) error { return writeTable(cmd, page, false) },
	"wide":  func(cmd *cobra.Command, page *jobq.Page) error { return writeTable(cmd, page, true) },
	"json":  func(cmd *cobra.Command, page *jobq.Page) error { return writeJSON(cmd.OutOrStdout(), page) },
	"jsonl": writeJSONL,
	"csv":   writeCSV,
	"id":    writeIDs,
}

func writeTable(cmd *cobra.Command, page *jobq.Page, wide bool) error {
	header := []string{"ID", "STATE", "QUEUE", "KIND", "TRY", "WHEN"}
	if wide {
		header = append(header, "PRIO", "CREATED", "WORKER", "TAGS", "KEY")
	}
	t := newTable(cmd.OutOrStdout(), append(header, "LAST ERROR")...)
	for _, job := range page.Jobs {
		row := []string{
			strconv.FormatInt(job.ID, 10), stateText(job), job.Queue, job.Kind,
			fmt.Sprintf("%d/%d", job.Attempts, job.MaxAttempts), timeOf(job),
		}
		if wide {
			row = append(row, strconv.Itoa(int(job.Priority)), job.CreatedAt.Format(time.RFC3339), job.LeaseOwner,
				strings.Join(job.Tags, ","), job.UniqueKey)
		}
		t.row(append(row, cut(job.LastError))...)
	}
	if err := t.flush(); err != nil {
		return err
	}
	sayMore(cmd, page)
	return nil
}

func sayMore(cmd *cobra.Command, page *jobq.Page) {
	if page.Cursor != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "more: --after %s\n", page.Cursor)
	}
}

func writeJSONL(cmd *cobra.Command, page *jobq.Page) error {
	for _, job := range page.Jobs {
		if err := writeLine(cmd.OutOrStdout(), job); err != nil {
			return err
		}
	}
	sayMore(cmd, page)
	return nil
}

func writeIDs(cmd *cobra.Command, page *jobq.Page) error {
	for _, job := range page.Jobs {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), job.ID); err != nil {
			return err
		}
	}
	sayMore(cmd, page)
	return nil
}

func writeCSV(cmd *cobra.Command, page *jobq.Page) error {
	writer, terminal := csv.NewWriter(cmd.OutOrStdout()), isTerminal(cmd.OutOrStdout())
	rows := [][]string{{
		"id", "state", "queue", "kind", "priority", "attempts", "max_attempts", "run_at", "created_at", "started_at",
		"finished_at", "unique_key", "lease_owner", "last_error",
	}}
	for _, job := range page.Jobs {
		row := []string{
			strconv.FormatInt(job.ID, 10), string(job.State), job.Queue, job.Kind, strconv.Itoa(int(job.Priority)),
			strconv.Itoa(job.Attempts), strconv.Itoa(job.MaxAttempts), job.RunAt.Format(time.RFC3339Nano),
			job.CreatedAt.Format(time.RFC3339Nano), csvTime(job.StartedAt), csvTime(job.FinishedAt), job.UniqueKey,
			job.LeaseOwner, job.LastError,
		}
		if terminal { // a file has what is stored
			for i, cell := range row {
				row[i] = printable.Line(cell)
			}
		}
		rows = append(rows, row)
	}
	sayMore(cmd, page)
	return writer.WriteAll(rows)
}

func csvTime(moment *time.Time) string {
	if moment == nil {
		return ""
	}
	return moment.Format(time.RFC3339Nano)
}
