package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/jobedit"
)

// shellQuote makes a text one word of a POSIX shell.
func shellQuote(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:-") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// commandLine is the command line of what follows the program's name, on this database.
func (m *Model) commandLine(command string) string {
	line := "jobq "
	for _, word := range m.env.link.Flags {
		line += shellQuote(word) + " "
	}
	return line + command
}

// bulkCommand is the command line of an action by filter, or empty: none acts
// on all jobs there are.
func (m *Model) bulkCommand(action jobq.Action, filter string) string {
	if filter == "" {
		return ""
	}
	return m.commandLine(fmt.Sprintf("%s --filter %s", action, shellQuote(filter)))
}

// editCommand is the command that makes the same change, from its verb on.
func editCommand(verb string, id int64, change jobq.JobChange) string {
	command := fmt.Sprintf("%s %d", verb, id)
	flag := func(name, value string) { command += " --" + name + " " + shellQuote(value) }
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

// copyItems are what can be copied on the screen: above all the command lines
// that do, or show, the same.
func (m *Model) copyItems() []copyItem {
	switch m.screen {
	case screenJob, screenJobs:
		return m.jobCopyItems()
	case screenWorkers:
		items := []copyItem{{"command", m.commandLine("workers")}, {"json", m.commandLine("workers --json")}}
		if len(m.workers) > 0 {
			id := m.workers[m.workerAt()].ID
			items = append(items, copyItem{"id", id}, copyItem{"drain", m.commandLine("workers drain " + shellQuote(id))})
		}
		return items
	case screenAudit:
		items := []copyItem{{"command", m.commandLine("audit --json")}}
		if len(m.audit) > 0 {
			entry := m.audit[m.auditAt()]
			items = append(items, copyItem{"undo", m.commandLine(fmt.Sprintf("undo %d", entry.ID))})
			if entry.NoResume() == "" {
				items = append(items, copyItem{"resume", m.resumeCommand(entry)})
			}
		}
		return items
	case screenQueues, screenOverview:
	}
	items := []copyItem{{"command", m.commandLine("stats --watch")}, {"queues", m.commandLine("queues list")}}
	if len(m.queues) > 0 {
		name := m.queues[m.queueAt()].Name
		items = append(items,
			copyItem{"jobs", m.commandLine("list " + shellQuote("queue:"+quoteValue(name)))},
			copyItem{"pause", m.commandLine("queues pause " + shellQuote(name))}, copyItem{"resume", m.commandLine("queues resume " + shellQuote(name))})
	}
	return append(items, copyItem{"frame", m.commandLine("tui --print overview --size 80x24")})
}

func (m *Model) jobCopyItems() []copyItem {
	var items []copyItem
	if m.screen == screenJobs {
		command := "list " + shellQuote(m.jobs.filterText())
		o := m.jobs.order()
		if o.sort != jobq.NewestFirst {
			command += " --sort " + string(o.sort)
		}
		if o.reverse {
			command += " --reverse"
		}
		items = append(items, copyItem{"list", m.commandLine(command)})
		if m.jobs.all != nil {
			for _, action := range []jobq.Action{jobq.ActionRequeue, jobq.ActionCancel} {
				if command := m.bulkCommand(action, m.jobs.all.filter); command != "" {
					items = append(items, copyItem{string(action), command})
				}
			}
			return items
		}
	}
	targets := m.targets()
	if len(targets) == 0 {
		return append(items, copyItem{"command", m.commandLine("tui")})
	}
	ids := make([]string, len(targets))
	for i, target := range targets {
		ids[i] = strconv.FormatInt(target.ID, 10)
	}
	all := strings.Join(ids, " ")
	items = append(items,
		copyItem{"id", all}, copyItem{"requeue", m.commandLine("requeue " + all)}, copyItem{"cancel", m.commandLine("cancel " + all)},
		copyItem{"edit", m.commandLine("edit " + ids[0])}, copyItem{"clone", m.commandLine("clone " + ids[0])},
		copyItem{"show", m.commandLine("show " + ids[0])}, copyItem{"permalink", m.commandLine("tui --open job/" + ids[0])})
	if m.lastEdit != "" {
		items = append(items, copyItem{"last edit", m.commandLine(m.lastEdit)})
	}
	if job := m.job.story.job; job != nil && job.ID == targets[0].ID {
		items = append(items, copyItem{"args", string(job.Args)})
		if job.LastError != "" {
			items = append(items, copyItem{"error", job.LastError})
		}
	}
	return items
}

// copyItem is something to copy.
type copyItem struct{ name, text string }
