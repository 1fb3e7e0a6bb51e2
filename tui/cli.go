package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
)

// shellQuote makes a text one word of a POSIX shell.
func shellQuote(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:-") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func bulkCommand(action jobq.Action, filter string) string {
	return fmt.Sprintf("jobq %s --filter %s", action, shellQuote(filter))
}

// editCommand is the command line that makes the same change.
func editCommand(verb string, id int64, change jobq.JobChange) string {
	command := fmt.Sprintf("jobq %s %d", verb, id)
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
		flag("tag", csvLine(*change.Tags))
	}
	if change.Metadata != nil {
		flag("metadata", jobedit.OneLine(change.Metadata))
	}
	if change.Args != nil {
		flag("args", jobedit.OneLine(change.Args))
	}
	return command
}

func resumeCommand(entry jobq.AuditEntry) string {
	return fmt.Sprintf("jobq audit resume %d", entry.ID)
}

// copyItems are what can be copied on the screen: above all the command lines
// that do, or show, the same.
func (m *Model) copyItems() []copyItem {
	switch m.screen {
	case screenJob, screenJobs:
		return m.jobCopyItems()
	case screenWorkers:
		items := []copyItem{{"command", "jobq workers"}, {"json", "jobq workers --json"}}
		if len(m.workers) > 0 {
			id := m.workers[m.workerAt()].ID
			items = append(items, copyItem{"id", id}, copyItem{"drain", "jobq workers drain " + shellQuote(id)})
		}
		return items
	case screenAudit:
		items := []copyItem{{"command", "jobq audit --json"}}
		if len(m.audit) > 0 {
			entry := m.audit[m.auditAt()]
			items = append(items, copyItem{"undo", fmt.Sprintf("jobq undo %d", entry.ID)})
			if entry.NoResume() == "" {
				items = append(items, copyItem{"resume", resumeCommand(entry)})
			}
		}
		return items
	case screenQueues, screenOverview:
	}
	items := []copyItem{{"command", "jobq stats --watch"}, {"queues", "jobq queues list"}}
	if len(m.queues) > 0 {
		name := m.queues[m.queueAt()].Name
		items = append(items,
			copyItem{"jobs", "jobq list " + shellQuote("queue:"+quoteValue(name))},
			copyItem{"pause", "jobq queues pause " + shellQuote(name)}, copyItem{"resume", "jobq queues resume " + shellQuote(name)})
	}
	return append(items, copyItem{"frame", "jobq tui --print overview --size 80x24"})
}

func (m *Model) jobCopyItems() []copyItem {
	var items []copyItem
	if m.screen == screenJobs {
		command := "jobq list " + shellQuote(m.jobs.filterText())
		o := m.jobs.order()
		if o.sort != jobq.NewestFirst {
			command += " --sort " + string(o.sort)
		}
		if o.reverse {
			command += " --reverse"
		}
		items = append(items, copyItem{"list", command})
		if m.jobs.all != nil {
			return append(items, copyItem{"requeue", bulkCommand(jobq.ActionRequeue, m.jobs.all.filter)},
				copyItem{"cancel", bulkCommand(jobq.ActionCancel, m.jobs.all.filter)})
		}
	}
	targets := m.targets()
	if len(targets) == 0 {
		return append(items, copyItem{"command", "jobq tui"})
	}
	ids := make([]string, len(targets))
	for i, target := range targets {
		ids[i] = strconv.FormatInt(target.ID, 10)
	}
	all := strings.Join(ids, " ")
	items = append(items,
		copyItem{"id", all}, copyItem{"requeue", "jobq requeue " + all}, copyItem{"cancel", "jobq cancel " + all},
		copyItem{"edit", "jobq edit " + ids[0]}, copyItem{"clone", "jobq clone " + ids[0]},
		copyItem{"show", "jobq show " + ids[0]}, copyItem{"permalink", "jobq tui --open job/" + ids[0]})
	if m.lastEdit != "" {
		items = append(items, copyItem{"last edit", m.lastEdit})
	}
	if job := m.job.story.job; job != nil && job.ID == targets[0].ID {
		items = append(items, copyItem{"args", string(job.Args)})
		if job.LastError != "" {
			items = append(items, copyItem{"error", job.LastError})
		}
	}
	return items
}
