package tui

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/editing"
)

// plain is the frame without colours, and without blanks at the ends of lines.
func (b *bench) plain() string {
	lines := strings.Split(ansi.Strip(b.frame()), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// editEntry is an edit in the audit.
var editEntry = monitor.AuditEntry{
	ID: 16, At: noon.Add(-2 * time.Hour), Actor: "ana@laptop via jobq-tui", Action: jobq.ActionEdit, Done: 1, JobIDs: []int64{48213890},
	Change: json.RawMessage(`{"priority": -5, "queue": "bulk"}`),
}

// edit is the edit of the first job, in a file that is not there.
func (b *bench) edit() editing.Edit {
	return editing.Edit{Job: b.fake.jobs[0], File: &jobedit.File{Path: "/tmp/jobq-48213911-12.json"}}
}

// screens are all that can be seen, and how to get there.
func screens() map[string]func(b *bench) {
	return map[string]func(b *bench){
		"overview": func(b *bench) {
			b.Update(feedStateMsg{feedLive, ""})
			b.Update(feedMsg{At: noon, Lag: 84 * time.Millisecond, Ended: map[string]data.Ended{"default": {Completed: 412, Failed: 3}}, Events: []data.Event{
				{ID: 48213907, Queue: "email", Kind: "SendInvoice", State: jobq.StateCompleted, Took: 11 * time.Millisecond},
				{ID: 48213888, Queue: "thumbnails", Kind: "Resize", State: jobq.StateRunning, Percent: 63, Stage: "encode 19/30"},
			}})
		},
		"jobs": func(b *bench) {
			b.press("2", "/", `state:failed kind:Send*`, "enter", "jj", "space", "space")
		},
		"job":   func(b *bench) { b.press(Jobs, Down, Open) },
		"steps": func(b *bench) { b.openSteps() },
		"step-choice": func(b *bench) {
			b.openSteps()
			b.press(FromStep, Up, Up)
		},
		"step-confirm": func(b *bench) {
			b.openSteps()
			b.press(FromStep, Up, Up, Accept)
		},
		"output": func(b *bench) { b.press(Jobs, Down, Open, Output) },
		"queues": func(b *bench) { b.press(Queues, Down) },
		"keys": func(b *bench) {
			b.fake.queues[1].KeyLimit, b.fake.queues[1].KeyOrder = 1, jobq.KeyOrderHold
			b.press(Queues, Keys, Down)
		},
		"limits": func(b *bench) {
			b.fake.queues[1].Running, b.fake.queues[1].MaxRunning = 3, 3
			b.fake.queues[1].Rate = &jobq.Rate{Jobs: 100, Period: time.Minute, Burst: 10}
			b.fake.queues[1].ThrottledUntil = new(b.fake.now.Add(5 * time.Second))
			b.press(Queues)
			b.tick(4 * time.Second)
		},
		"workers":   func(b *bench) { b.press(Workers, Down) },
		"schedules": func(b *bench) { b.press(Schedules, Down) },
		"schedule":  func(b *bench) { b.press(Schedules, End, Open, Down) },
		"schedules-none": func(b *bench) {
			b.fake.schedules = nil
			b.press(Schedules)
		},
		"remove":       func(b *bench) { b.press(Schedules, Remove) },
		"errors":       func(b *bench) { b.press(Errors) },
		"requeue-how":  func(b *bench) { b.press(Errors, Requeue) },
		"requeue-rate": func(b *bench) { b.press(Errors, Requeue, "2", Accept) },
		"audit": func(b *bench) {
			b.fake.audit = []monitor.AuditEntry{
				{ID: 2, At: noon, Actor: "ana@laptop via jobq-tui", Action: jobq.ActionUndo, Undoes: 1, Note: "requeue", Done: 1, JobIDs: []int64{48213890}},
				{ID: 1, At: noon.Add(-time.Minute), Actor: "ana@laptop via jobq-tui", Action: jobq.ActionRequeue, UndoneBy: 2, Done: 1, JobIDs: []int64{48213890}},
			}
			b.press(Audit)
		},
		"help":    func(b *bench) { b.press(Help) },
		"palette": func(b *bench) { b.press(Palette, "wo") },
		"filter":  func(b *bench) { b.press(Jobs, Filter, "st") },
		"confirm": func(b *bench) { b.press(Jobs, Delete) },
		"bulk":    func(b *bench) { b.press(Jobs, SelectAll, Requeue) },
		"export":  func(b *bench) { b.press(Jobs, Export) },
		"drain":   func(b *bench) { b.press(Workers, Down, Drain) },
		"resume": func(b *bench) {
			b.fake.audit = []monitor.AuditEntry{stoppedBulk, editEntry}
			b.press(Audit, Resume)
		},
		"edit": func(b *bench) {
			change := operator.JobChange{Priority: new(int16(-5)), Tags: &[]string{}, Args: json.RawMessage(`{"batch":"2026-09-24","tenant":4412,"note":"a longer text"}`)}
			b.press(Jobs)
			b.fake.jobs[0].State = jobq.StateScheduled
			b.Update(editing.Edited{Edit: b.edit(), Change: change})
		},
		"edit-not-done": func(b *bench) {
			b.Update(editing.Edited{Edit: b.edit(), Err: errors.New("edit job 48213911: its priority has changed meanwhile")})
		},
		"edit-again": func(b *bench) {
			b.Update(editing.Edited{Edit: b.edit(), Problem: errors.New("line 5: priority must be a whole number from -32768 to 32767, not string")})
		},
		"contexts": func(b *bench) {
			b.env.contexts = []Context{
				{Name: "prod", Database: "app@db-1:5432/app", Color: "red", Production: true, Confirm: true, ReadOnly: true},
				{Name: "staging", Database: "app@db-2:5432/app", Color: "green"},
			}
			b.press(Contexts)
		},
		"production": func(b *bench) { b.env.name, b.env.production, b.env.color = "billing", true, "magenta" },
		"tree":       func(b *bench) { b.press(Jobs, Down, Open, Tree, "j") },
		"copy":       func(b *bench) { b.press(Jobs, Copy) },
		"offline": func(b *bench) {
			b.fake.err = fmt.Errorf("list queues: %w", jobq.ErrUnavailable)
			b.tick(3 * time.Second)
			b.tick(4 * time.Second)
		},
	}
}

// Every screen looks at every size as it did when somebody last looked at it.
func TestFrames(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ cells, lines int }{{200, 60}, {120, 35}, {80, 24}, {60, 15}, {40, 10}} {
		for name, arrange := range screens() {
			if size.cells == 40 && name != "overview" {
				continue // too small for any of them
			}
			if size.cells == 200 && !strings.HasPrefix(name, "schedule") {
				continue // as at 120x35, with more room
			}
			t.Run(fmt.Sprintf("%s-%dx%d", name, size.cells, size.lines), func(t *testing.T) {
				t.Parallel()
				b := newBench(size.cells, size.lines)
				b.frame()
				arrange(b)
				golden(t, fmt.Sprintf("%s-%dx%d", name, size.cells, size.lines), b.plain())
			})
		}
	}
}

// styled is the frame with its styles, to be read.
func (b *bench) styled() string {
	lines := strings.Split(strings.ReplaceAll(b.View().Content, "\x1b", "^["), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// Every screen in the colours of one theme: what people see is more than the
// text. How the styles of the other themes differ is tested in theme.
func TestStyledFrames(t *testing.T) {
	t.Parallel()
	for name, arrange := range screens() {
		b := newBench(80, 24)
		b.look.style.Name = "dark"
		b.restyle()
		b.frame()
		arrange(b)
		golden(t, "styled/"+name, b.styled())
	}
}

// The main screens as a terminal shows them that has said that its background is
// light, and that it has all colours. The colours of the sixteen, of which some
// cannot be read there, are nowhere.
func TestLightFrames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"overview", "jobs", "job", "queues", "workers", "schedules", "audit", "confirm", "help", "production", "offline"} {
		b := newBench(80, 24)
		b.Update(tea.ColorProfileMsg{Profile: colorprofile.TrueColor})
		b.Update(tea.BackgroundColorMsg{Color: color.White})
		b.frame()
		screens()[name](b)
		frame := b.styled()
		require.NotRegexp(t, `\[([17];)*(2|3[0-7]|9[0-7])[;m]`, frame, name)
		golden(t, "light/"+name, frame)
	}
}

// Without colours a screen has none, and is the same text: NO_COLOR and mono keep
// bold and reverse, and nothing is said by a colour alone.
func TestFramesWithoutColours(t *testing.T) {
	t.Parallel()
	for name, arrange := range screens() {
		coloured := newBench(120, 35)
		arrange(coloured)
		for how, without := range map[string]func(b *bench){
			"NO_COLOR on light": func(b *bench) {
				b.Update(tea.ColorProfileMsg{Profile: colorprofile.ASCII})
				b.Update(tea.BackgroundColorMsg{Color: color.White})
			},
			"mono": func(b *bench) {
				b.Update(tea.ColorProfileMsg{Profile: colorprofile.TrueColor})
				b.setTheme("mono")
			},
		} {
			b := newBench(120, 35)
			without(b)
			arrange(b)
			require.NotRegexp(t, `\x1b\[[\d;]*(3|4|9|10)\d`, b.frame(), "%s: %s", name, how)
			require.Equal(t, coloured.plain(), b.plain(), "%s: %s", name, how)
		}
	}
}

// The terminal's background chooses the theme, unless the operator has.
func TestThemeChoice(t *testing.T) {
	t.Parallel()
	b := newBench(80, 24)
	require.Equal(t, "auto", b.paint.Name)
	b.Update(tea.BackgroundColorMsg{Color: color.White})
	require.Equal(t, "light", b.paint.Name)
	b.press(Palette, "theme dark", Accept)
	require.Equal(t, "dark", b.paint.Name)
	b.Update(tea.BackgroundColorMsg{Color: color.White})
	require.Equal(t, "dark", b.paint.Name)
	b.press(Palette, "theme pink", Accept)
	require.Contains(t, b.plain(), `no theme "pink"; there are auto, dark, light, mono`)
	b.press("ctrl+u", "theme a", Complete, Accept)
	b.Update(tea.BackgroundColorMsg{Color: color.Black})
	require.Equal(t, "dark", b.paint.Name)
}

// What the terminal can show changes the styles, and no colours are asked for
// where it has none.
func TestColourProfile(t *testing.T) {
	t.Parallel()
	b := newBench(80, 24)
	b.Update(tea.BackgroundColorMsg{Color: color.Black})
	before := b.paint.Muted.Render("x")
	b.Update(tea.ColorProfileMsg{Profile: colorprofile.TrueColor})
	require.NotEqual(t, before, b.paint.Muted.Render("x"))
	b.Update(tea.ColorProfileMsg{Profile: colorprofile.ASCII})
	require.Equal(t, "x", b.paint.Failed.Render("x"))
}

// With --ascii there is nothing but ASCII on any screen, and production says what
// it is in words and not just in colour.
func TestASCIIAndProduction(t *testing.T) {
	t.Parallel()
	for name, arrange := range screens() {
		b := newBench(120, 35)
		b.env.ascii, b.env.name, b.env.production = true, "prod", true
		b.restyle()
		arrange(b)
		frame := strings.NewReplacer("␛", "", "␀", "").Replace(b.plain())
		for _, char := range frame {
			require.Less(t, char, rune(128), "%s: %q in\n%s", name, char, frame)
		}
		if name != "production" {
			require.Contains(t, frame, " prod ", name)
		}
	}
}
