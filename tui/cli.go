package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/tui/screen"
)

// commandLine is the command line of what follows the program's name, on this database.
func (m *Model) commandLine(command string) string {
	line := "jobq "
	for _, word := range m.env.link.Flags {
		line += format.ShellWord(word) + " "
	}
	return line + command
}

// bulkCommand is the command line of an action by filter, or empty: none acts
// on all jobs there are.
func (m *Model) bulkCommand(action jobq.Action, filter string) string {
	if filter == "" {
		return ""
	}
	return m.commandLine(fmt.Sprintf("%s --filter %s", action, format.ShellWord(filter)))
}

// editCommand is the command that makes the same change, from its verb on.
func editCommand(verb string, id int64, change jobq.JobChange) string {
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
		flag("tag", format.CSVLine(*change.Tags))
	}
	if change.Metadata != nil {
		flag("metadata", jobedit.OneLine(change.Metadata))
	}
	if change.Args != nil {
		flag("args", jobedit.OneLine(change.Args))
	}
	return command
}

func (m *Model) resumeCommand(entry jobq.AuditEntry) string {
	return m.commandLine(fmt.Sprintf("audit resume %d", entry.ID))
}

// copyItem is something to copy.
type copyItem struct{ name, text string }

// copyItems are what can be copied on the screen: above all the command lines
// that do, or show, the same.
func (m *Model) copyItems() []copyItem {
	selected := m.current().Selected()
	command := func(name, text string) copyItem { return copyItem{name, m.commandLine(text)} }
	switch m.at {
	case screen.Job, screen.Jobs:
		return m.jobCopyItems(selected)
	case screen.Workers:
		items := []copyItem{command("command", "workers"), command("json", "workers --json")}
		if w := selected.Worker; w != nil {
			items = append(items, copyItem{"id", w.ID}, command("drain", "workers drain "+format.ShellWord(w.ID)))
		}
		return items
	case screen.Audit:
		items := []copyItem{command("command", "audit --json")}
		if entry := selected.Entry; entry != nil {
			items = append(items, command("undo", fmt.Sprintf("undo %d", entry.ID)))
			if entry.NoResume() == "" {
				items = append(items, copyItem{"resume", m.resumeCommand(*entry)})
			}
		}
		return items
	case screen.Errors:
		if selected.List != "" {
			return []copyItem{
				command("jobs", selected.List),
				{"requeue", m.bulkCommand(jobq.ActionRequeue, selected.Match)},
				{"id", strconv.FormatInt(selected.Cursor, 10)},
				command("show", fmt.Sprintf("show %d", selected.Cursor)),
			}
		}
	case screen.Overview, screen.Queues:
	}
	items := []copyItem{command("command", "stats --watch"), command("queues", "queues list")}
	if q := selected.Queue; q != nil {
		name := format.ShellWord(q.Name)
		items = append(items, command("jobs", "list "+format.ShellWord(filter.Equal("queue", q.Name).String())),
			command("pause", "queues pause "+name), command("resume", "queues resume "+name))
	}
	return append(items, command("frame", "tui --print overview --size 80x24"))
}

func (m *Model) jobCopyItems(selected screen.Selection) []copyItem {
	var items []copyItem
	command := func(name, text string) { items = append(items, copyItem{name, m.commandLine(text)}) }
	if selected.List != "" {
		command("list", selected.List)
	}
	if selected.All != nil {
		for _, action := range []jobq.Action{jobq.ActionRequeue, jobq.ActionCancel} {
			if line := m.bulkCommand(action, selected.All.Filter); line != "" {
				items = append(items, copyItem{string(action), line})
			}
		}
		return items
	}
	if len(selected.Targets) == 0 {
		command("command", "tui")
		return items
	}
	ids := make([]string, len(selected.Targets))
	for i, target := range selected.Targets {
		ids[i] = strconv.FormatInt(target.ID, 10)
	}
	all := strings.Join(ids, " ")
	items = append(items, copyItem{"id", all})
	command("requeue", "requeue "+all)
	command("cancel", "cancel "+all)
	for _, verb := range []string{"edit", "clone", "show"} {
		command(verb, verb+" "+ids[0])
	}
	command("permalink", fmt.Sprintf("tui --open job/%d", selected.Cursor))
	if m.lastEdit != "" {
		command("last edit", m.lastEdit)
	}
	if job := selected.Job; job != nil && job.ID == selected.Targets[0].ID {
		items = append(items, copyItem{"args", string(job.Args)})
		if job.LastError != "" {
			items = append(items, copyItem{"error", job.LastError})
		}
	}
	return items
}
