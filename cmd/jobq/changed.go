package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq/internal/printable"
)

// changed is what came of a change of a queue, a kind or a schedule, with --json. One of Queue, Kind and Schedule is its name.
type changed struct {
	Queue    string `json:"queue,omitempty"`
	Kind     string `json:"kind,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	// Key is the partition key of the queue that was changed, and not the whole queue.
	Key string `json:"key,omitempty"`
	// Changed is false when it was so already.
	Changed bool `json:"changed"`
	// AuditID is the action's entry in the audit, for "jobq undo".
	AuditID int64 `json:"audit_id,omitempty"`
	// HasJobs says of a key whether a job of it is in the line.
	HasJobs *bool `json:"has_jobs,omitempty"`
}

// sayChanged says how something is now, such as paused, and how that is taken back, or that it was so already.
func (a *app) sayChanged(cmd *cobra.Command, c changed, is string) error {
	c.Changed = c.AuditID != 0
	if a.json {
		return writeJSON(cmd.OutOrStdout(), c)
	}
	what := "queue " + printable.Line(c.Queue)
	switch {
	case c.Kind != "":
		what = "kind " + printable.Line(c.Kind)
	case c.Schedule != "":
		what = "schedule " + printable.Line(c.Schedule)
	case c.Key != "":
		what = "key " + printable.Line(c.Key) + " of " + what
	}
	note := ""
	if c.HasJobs != nil && !*c.HasJobs { // it may be misspelt
		note = "; no job of it is available"
	}
	text := fmt.Sprintf("%s is already %s%s", what, is, note)
	if c.Changed {
		text = fmt.Sprintf("%s is %s%s; take it back with: jobq undo %d", what, is, note, c.AuditID)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}
