package tui

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq"
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

// copyItems are what can be copied on the screen: above all the command lines
// that do, or show, the same.
func (m *Model) copyItems() []copyItem {
	switch m.screen {
	case screenJob, screenJobs:
		return m.jobCopyItems()
	case screenWorkers:
		return []copyItem{{"command", "jobq workers"}, {"json", "jobq workers --json"}}
	case screenAudit:
		items := []copyItem{{"command", "jobq audit --json"}}
		if len(m.audit) > 0 {
			items = append(items, copyItem{"undo", fmt.Sprintf("jobq undo %d", m.audit[m.auditAt()].ID)})
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
		copyItem{"show", "jobq show " + ids[0]}, copyItem{"permalink", "jobq tui --open job/" + ids[0]})
	if job := m.job.story.job; job != nil && job.ID == targets[0].ID {
		items = append(items, copyItem{"args", string(job.Args)})
		if job.LastError != "" {
			items = append(items, copyItem{"error", job.LastError})
		}
	}
	return items
}
