// Package commandline has the command lines of jobq that do, or show, the same as
// what an operator does in the terminal UI. What he copies there is a runbook.
package commandline

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/operator"
)

// Program is the jobq command with the flags that lead it to one database.
type Program struct{ Flags []string }

// Line is the command line of a command: of what follows the program's name.
func (p Program) Line(command string) string {
	line := "jobq "
	for _, word := range p.Flags {
		line += format.ShellWord(word) + " "
	}
	return line + command
}

// Bulk is the command line of an action by filter, or empty: none acts on all jobs
// there are.
func (p Program) Bulk(action jobq.Action, filter string, limits ...string) string {
	if filter == "" {
		return ""
	}
	return p.Line(strings.Join(append([]string{string(action), "--filter", format.ShellWord(filter)}, limits...), " "))
}

// Resume is the command line that goes on with an action by filter.
func (p Program) Resume(id int64) string { return p.Line(fmt.Sprintf("audit resume %d", id)) }

// Edit is the command that makes the same change, from its verb on.
func Edit(verb string, id int64, change operator.JobChange) string {
	command := fmt.Sprintf("%s %d", verb, id)
	flag := func(name, value string) { command += " --" + name + " " + format.ShellWord(value) }
	if change.Queue != nil {
		flag("queue", *change.Queue)
	}
	if change.Priority != nil {
		flag("priority", strconv.Itoa(int(*change.Priority)))
	}
	if change.RunAt != nil {
		flag("run-at", change.RunAt.Format(time.RFC3339Nano))
	}
	if change.MaxAttempts != nil {
		flag("max-attempts", strconv.Itoa(*change.MaxAttempts))
	}
	if change.Tags != nil {
		tags := *change.Tags
		if len(tags) == 0 {
			tags = []string{""} // an empty one leaves none
		}
		for _, tag := range tags {
			flag("tag", tag)
		}
	}
	if change.Metadata != nil {
		flag("metadata", jobedit.OneLine(change.Metadata))
	}
	if change.Args != nil {
		flag("args", jobedit.OneLine(change.Args))
	}
	return command
}
