package commandline

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/screen"
)

// Item is something to copy.
type Item struct{ Name, Text string }

// Items are what can be copied on a screen: above all the command lines that do, or
// show, the same. lastEdit is the last edit, as a command; empty for none.
func (p Program) Items(at screen.Name, selected screen.Selection, lastEdit string) []Item {
	command := func(name, text string) Item { return Item{name, p.Line(text)} }
	switch at {
	case screen.Job, screen.Jobs:
		return p.jobItems(selected, lastEdit)
	case screen.Workers:
		items := []Item{command("command", "workers"), command("json", "workers --json")}
		if w := selected.Worker; w != nil {
			items = append(items, Item{"id", w.ID}, command("drain", "workers drain "+format.ShellWord(w.ID)))
		}
		return items
	case screen.Schedules:
		items := []Item{command("command", "schedules list"), command("json", "schedules list --json")}
		if s := selected.Schedule; s != nil {
			name := format.ShellWord(s.Name)
			for _, verb := range []string{"show", "next", "pause", "resume", "run", "rm"} {
				items = append(items, command(verb, "schedules "+verb+" "+name))
			}
			items = append(items, command("jobs", "list "+format.ShellWord(filter.Term{Field: "meta.schedule", Op: "=", Values: []filter.Value{{Text: s.Name}}}.String())))
		}
		return items
	case screen.Audit:
		items := []Item{command("command", "audit --json")}
		if entry := selected.Entry; entry != nil {
			items = append(items, command("undo", fmt.Sprintf("undo %d", entry.ID)))
			if entry.NoResume() == "" {
				items = append(items, Item{"resume", p.Resume(entry.ID)})
			}
		}
		return items
	case screen.Errors:
		if selected.List != "" {
			return []Item{
				command("jobs", selected.List),
				{"requeue", p.Bulk(jobq.ActionRequeue, selected.Match)},
				{"id", strconv.FormatInt(selected.Cursor, 10)},
				command("show", fmt.Sprintf("show %d", selected.Cursor)),
			}
		}
	case screen.Overview, screen.Queues:
	}
	items := []Item{command("command", "stats --watch"), command("queues", "queues list")}
	if q := selected.Queue; q != nil {
		name := format.ShellWord(q.Name)
		items = append(items, command("jobs", "list "+format.ShellWord(filter.Equal("queue", q.Name).String())),
			command("pause", "queues pause "+name), command("resume", "queues resume "+name))
	}
	if keys := selected.Keys; keys != nil && keys.Key != nil {
		name := format.ShellWord(keys.Queue) + " --key " + format.ShellWord(keys.Key.Key)
		items = append(items, command("pause key", "queues pause "+name), command("resume key", "queues resume "+name))
	}
	return append(items, command("frame", "tui --print overview --size 80x24"))
}

func (p Program) jobItems(selected screen.Selection, lastEdit string) []Item {
	var items []Item
	command := func(name, text string) { items = append(items, Item{name, p.Line(text)}) }
	if selected.List != "" {
		command("list", selected.List)
	}
	if selected.All != nil {
		for _, action := range []jobq.Action{jobq.ActionRequeue, jobq.ActionCancel} {
			if line := p.Bulk(action, selected.All.Filter); line != "" {
				items = append(items, Item{string(action), line})
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
	items = append(items, Item{"id", all})
	command("requeue", "requeue "+all)
	command("cancel", "cancel "+all)
	for _, verb := range []string{"edit", "clone", "show"} {
		command(verb, verb+" "+ids[0])
	}
	command("permalink", fmt.Sprintf("tui --open job/%d", selected.Cursor))
	if lastEdit != "" {
		command("last edit", lastEdit)
	}
	if job := selected.Job; job != nil && job.ID == selected.Targets[0].ID {
		items = append(items, Item{"args", string(job.Args)})
		if job.LastError != "" {
			items = append(items, Item{"error", job.LastError})
		}
	}
	return items
}
