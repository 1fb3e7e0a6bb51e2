package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
)

// Pages of a list that has all its rows. With args and results, a job may have some MiB.
const (
	csvPage       = 1000
	csvValuesPage = 100
)

// listColumns are the jobs of a list in the columns chosen, page by page.
type listColumns struct {
	columns   []string
	codec     jobq.Codec // nil: what is encrypted stays so
	encrypted int        // jobs whose values are encrypted, and were not decrypted
}

// cells are a job's, and make what is encrypted plain where there are keys.
func (l *listColumns) cells(cmd *cobra.Command, job *jobq.Job) ([]string, error) {
	_, args := jobq.EncryptedWith(job.Args)
	_, result := jobq.EncryptedWith(job.Result)
	_, checkpoint := jobq.EncryptedWith(job.Checkpoint)
	switch isEncrypted := args || result || checkpoint; {
	case isEncrypted && l.codec == nil:
		l.encrypted++
	case isEncrypted:
		if err := job.Decode(cmd.Context(), l.codec); err != nil {
			return nil, fmt.Errorf("job %d: %w", job.ID, err)
		}
	}
	return format.JobCells(job, l.columns)
}

// warn says what is missing in the list.
func (l *listColumns) warn(cmd *cobra.Command) {
	if l.encrypted > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: args or results of %s are encrypted: --keys-file decrypts them\n", format.Count(int64(l.encrypted), "job"))
	}
}

// writeCSV writes all jobs of the list, or as many as most says if that is not 0.
func (l *listColumns) writeCSV(cmd *cobra.Command, client *jobq.Client, filter jobq.Filter, most int) error {
	filter.Limit, filter.Values = csvPage, format.NeedsValues(l.columns)
	if filter.Values {
		filter.Limit = csvValuesPage
	}
	show := func(text string) string { return text } // a file has what is stored
	progress := newProgressLine(cmd.ErrOrStderr())
	if isTerminal(cmd.OutOrStdout()) {
		show, progress = printable.Line, nil
	}
	out := format.NewCSVRows(cmd.OutOrStdout())
	out.Row(l.columns)
	for written := 0; ; {
		if most > 0 {
			filter.Limit = min(filter.Limit, most-written)
		}
		page, err := client.List(cmd.Context(), filter)
		if err != nil {
			return err
		}
		for _, job := range page.Jobs {
			cells, err := l.cells(cmd, job)
			if err != nil {
				return err
			}
			for i, cell := range cells {
				cells[i] = show(cell)
			}
			out.Row(cells)
		}
		if err := out.Flush(); err != nil {
			return err
		}
		written += len(page.Jobs)
		if progress != nil {
			progress.say("%s", format.Count(int64(written), "job"))
		}
		if filter.Before, filter.After = 0, page.Cursor; page.Cursor == "" || written == most {
			if progress != nil {
				progress.end()
			}
			l.warn(cmd)
			sayMore(cmd, page)
			return nil
		}
	}
}

// writeTable writes a page of jobs.
func (l *listColumns) writeTable(cmd *cobra.Command, page *jobq.Page) error {
	t := newTable(cmd.OutOrStdout(), l.columns...)
	for _, job := range page.Jobs {
		cells, err := l.cells(cmd, job)
		if err != nil {
			return err
		}
		for i, cell := range cells {
			cells[i] = cut(cell)
		}
		t.row(cells...)
	}
	if err := t.flush(); err != nil {
		return err
	}
	l.warn(cmd)
	sayMore(cmd, page)
	return nil
}
