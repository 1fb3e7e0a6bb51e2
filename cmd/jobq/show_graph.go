package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

// afterShown is how many of the jobs for which one waits are shown.
const afterShown = 10

// showGraph prints a job with those for which it waits, and those that wait for it.
func (a *app) showGraph(cmd *cobra.Command, client *jobq.Client, job *jobq.Job) error {
	graph, err := monitor.New(client).Graph(cmd.Context(), job.ID)
	if err != nil {
		return err
	}
	if a.json {
		return writeJSON(cmd.OutOrStdout(), graph)
	}
	t := newTable(cmd.OutOrStdout(), "JOB", "STATE", "QUEUE", "KIND", "AFTER")
	for _, each := range graph {
		mark := ""
		if each.ID == job.ID {
			mark = " *"
		}
		t.row(fmt.Sprint(each.ID)+mark, cmp.Or(string(each.State), "gone"), each.Queue, each.Kind, afterText(each.After))
	}
	return t.flush()
}

// afterText names the first of the jobs for which one waits, and how many more there are, if
// that is known.
func afterText(after []int64) string {
	names := make([]string, 0, afterShown)
	for _, id := range after[:min(len(after), afterShown)] {
		names = append(names, fmt.Sprint(id))
	}
	text := strings.Join(names, ", ")
	switch more := len(after) - len(names); {
	case len(after) >= monitor.GraphAfterMax:
		text += " and more"
	case more > 0:
		text += " and " + format.Number(int64(more)) + " more"
	}
	return text
}
