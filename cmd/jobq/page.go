package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
)

// pageWriters are the formats of `jobq list -o`. Data goes to the output, and
// where to go on to the other one.
var pageWriters = map[string]func(*cobra.Command, *jobq.Page) error{
	"table": func(cmd *cobra.Command, page *jobq.Page) error { return writeTable(cmd, page, false) },
	"wide":  func(cmd *cobra.Command, page *jobq.Page) error { return writeTable(cmd, page, true) },
	"json":  func(cmd *cobra.Command, page *jobq.Page) error { return writeJSON(cmd.OutOrStdout(), page) },
	"jsonl": writeJSONL,
	"id":    writeIDs,
}

func writeTable(cmd *cobra.Command, page *jobq.Page, wide bool) error {
	header := []string{"ID", "STATE", "QUEUE", "KIND", "TRY", "AGE", "TOOK"}
	if wide {
		header = append(header, "PRIO", "CREATED", "WORKER", "TAGS", "KEY")
	}
	t := newTable(cmd.OutOrStdout(), append(header, "LAST ERROR")...)
	now := time.Now()
	for _, job := range page.Jobs {
		row := []string{
			strconv.FormatInt(job.ID, 10), format.State(job), job.Queue, job.Kind, format.AttemptsAndLost(job), format.Age(job, now), format.Duration(job, now),
		}
		if wide {
			row = append(row, strconv.Itoa(int(job.Priority)), job.CreatedAt.Format(time.RFC3339), job.LeaseOwner,
				strings.Join(job.Tags, ","), job.UniqueKey)
		}
		t.row(append(row, cut(format.LastError(job)))...)
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
