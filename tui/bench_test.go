package tui

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/acting"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/commandline"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/polling"
	"github.com/jobq-dev/jobq/tui/screen"
)

// bench is a model with its database, whose commands are run at once.
type bench struct {
	*Model
	fake *fake
}

func newBench(cells, lines int) *bench {
	f := newFake()
	e := &env{now: func() time.Time { return f.now }, send: &sender{}, edit: f.runEditor, save: f.save}
	e.use(&link{Context: Context{Name: "staging"}, reader: f, writer: f, host: "db-1", schema: "jobq"})
	b := &bench{fake: f, Model: newModel(e)}
	b.resize(cells, lines)
	b.do(b.poll())
	return b
}

// do runs a command and all that follow from it, but for clocks.
func (b *bench) do(command tea.Cmd) {
	if command == nil {
		return
	}
	switch msg := command().(type) {
	case nil, tea.QuitMsg:
	case tea.BatchMsg:
		for _, c := range msg {
			b.do(c)
		}
	default:
		_, next := b.Update(msg)
		b.do(next)
	}
}

// tick lets time pass.
func (b *bench) tick(span time.Duration) {
	b.fake.now = b.fake.now.Add(span)
	b.age()
	b.do(b.poll())
	b.frame() // decides what is visible
}

// presses are the keys of a name, or of a text.
func presses(key string) (all []tea.KeyPressMsg) {
	code, named := keyCodes[key]
	switch {
	case named:
		return []tea.KeyPressMsg{{Code: code}}
	case key == "space":
		return []tea.KeyPressMsg{{Code: tea.KeySpace, Text: " "}}
	case strings.HasPrefix(key, "alt+"):
		return []tea.KeyPressMsg{{Code: keyCodes[strings.TrimPrefix(key, "alt+")], Mod: tea.ModAlt}}
	case strings.HasPrefix(key, "ctrl+"):
		return []tea.KeyPressMsg{{Code: rune(key[5]), Mod: tea.ModCtrl}}
	}
	for _, char := range key {
		all = append(all, tea.KeyPressMsg{Code: char, Text: string(char)})
	}
	return all
}

// hold presses a key, and returns what it begins, which is yet to be done.
func (b *bench) hold(key string) tea.Cmd {
	_, begun := b.Update(presses(key)[0])
	return begun
}

// press types keys, each a name or a text of single keys.
func (b *bench) press(keys ...string) {
	for _, key := range keys {
		for _, press := range presses(key) {
			_, begun := b.Update(press)
			if leaves := []string{command.Key(command.Quit), command.Key(command.Suspend), command.Interrupt}; !slices.Contains(leaves, key) {
				b.do(begun)
			}
			b.frame()
		}
	}
}

// selected is what an action on the screen is about.
func (b *bench) selected() screen.Selection { return b.current().Selected() }

// jobs is the list of jobs, whatever screen is shown.
func (b *bench) jobs() screen.Selection { return b.screens[screen.Jobs].Selected() }

// match is the filter of the list of jobs.
func (b *bench) match() string { return b.screens[screen.Jobs].(*screen.JobList).Match() }

// marked is how many jobs the screen says are marked.
func (b *bench) marked() (count int) {
	if found := regexp.MustCompile(`(\d+) marked`).FindStringSubmatch(b.plain()); found != nil {
		count, _ = strconv.Atoi(found[1])
	}
	return count
}

// shows says whether the list on the screen has a row for the job.
func (b *bench) shows(id int64) bool {
	return regexp.MustCompile(fmt.Sprintf(`(?m)^[> ][* ] +%d `, id)).MatchString(b.plain())
}

// answer gives the model an answer, as if it had just been asked.
func (b *bench) answer(msg polling.Loaded) {
	b.polling.Renew(msg.Panel)
	for _, want := range b.wanted() {
		if want.Panel == msg.Panel {
			ask := b.polling.Ask(b.fake, []data.Want{want})
			asked := ask().(polling.Loaded)
			msg.About, msg.Generation = asked.About, asked.Generation
			b.loaded(msg)
		}
	}
}

// frame draws the screen.
func (b *bench) frame() string {
	frame, _ := b.draw()
	return frame
}

// acted has the model hear of an action that changed a job, for undo.
func (b *bench) acted(id int64) {
	changed := operator.ActedJob{ID: 1, Before: jobq.StateFailed, After: jobq.StateAvailable, Changed: true}
	b.Update(acting.Result{Verb: command.Requeue, Acted: &operator.Acted{AuditID: id, Jobs: []operator.ActedJob{changed}}})
}

// copied is what the copy menu has.
func (b *bench) copied() []commandline.Item {
	return b.env.place().Program.Items(b.at, b.selected(), b.editing.Last())
}
