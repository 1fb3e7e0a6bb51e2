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
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
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
var editEntry = jobq.AuditEntry{
	ID: 16, At: noon.Add(-2 * time.Hour), Actor: "ana@laptop via jobq-tui", Action: jobq.ActionEdit, Done: 1, JobIDs: []int64{48213890},
	Change: json.RawMessage(`{"priority": -5, "queue": "bulk"}`),
}

// screens are all that can be seen, and how to get there.
func screens() map[string]func(b *bench) {
	return map[string]func(b *bench){
		"overview": func(b *bench) {
			b.Update(feedStateMsg{feedLive, ""})
			b.Update(feedMsg{at: noon, lag: 84 * time.Millisecond, ended: map[string]endedCount{"default": {412, 3}}, events: []jobEvent{
				{id: 48213907, queue: "email", kind: "SendInvoice", state: jobq.Completed, took: 11 * time.Millisecond},
				{id: 48213888, queue: "thumbnails", kind: "Resize", state: jobq.Running, percent: 63, stage: "encode 19/30"},
			}})
		},
		"jobs": func(b *bench) {
			b.press("2", "/", `state:failed kind:Send*`, "enter", "jj", "space", "space")
		},
		"job":     func(b *bench) { b.press("2", "j", "enter") },
		"output":  func(b *bench) { b.press("2", "j", "enter", "L") },
		"queues":  func(b *bench) { b.press("3", "j") },
		"workers": func(b *bench) { b.press("4", "j") },
		"audit": func(b *bench) {
			b.fake.audit = []jobq.AuditEntry{
				{ID: 2, At: noon, Actor: "ana@laptop via jobq-tui", Action: jobq.ActionUndo, Undoes: 1, Note: "requeue", Done: 1, JobIDs: []int64{48213890}},
				{ID: 1, At: noon.Add(-time.Minute), Actor: "ana@laptop via jobq-tui", Action: jobq.ActionRequeue, UndoneBy: 2, Done: 1, JobIDs: []int64{48213890}},
			}
			b.press("6")
		},
		"help":    func(b *bench) { b.press("?") },
		"palette": func(b *bench) { b.press(":", "wo") },
		"filter":  func(b *bench) { b.press("2", "/", "st") },
		"confirm": func(b *bench) { b.press("2", "D") },
		"bulk":    func(b *bench) { b.press("2", "A", "r") },
		"export":  func(b *bench) { b.press("2", "x") },
		"drain":   func(b *bench) { b.press("4", "j", "d") },
		"resume": func(b *bench) {
			b.fake.audit = []jobq.AuditEntry{stoppedBulk, editEntry}
			b.press("6", "R")
		},
		"edit": func(b *bench) {
			change := jobq.JobChange{Priority: new(int16(-5)), Tags: &[]string{}, Args: json.RawMessage(`{"batch":"2026-09-24","tenant":4412,"note":"a longer text"}`)}
			b.press("2")
			b.fake.jobs[0].State = jobq.Scheduled
			b.askChange(editedMsg{editing: editing{job: b.fake.jobs[0], file: &jobedit.File{Path: "/tmp/jobq-48213911-12.json"}}, change: change})
		},
		"edit-not-done": func(b *bench) {
			e := editing{job: b.fake.jobs[0], file: &jobedit.File{Path: "/tmp/jobq-48213911-12.json"}}
			b.notDone(e, "edit job 48213911: its priority has changed meanwhile")
		},
		"edit-again": func(b *bench) {
			e := editing{job: b.fake.jobs[0], file: &jobedit.File{Path: "/tmp/jobq-48213911-12.json"}}
			b.askAgain(e, errors.New("line 5: priority must be a whole number from -32768 to 32767, not string"))
		},
		"contexts": func(b *bench) {
			b.env.contexts = []Context{
				{Name: "prod", Database: "app@db-1:5432/app", Color: "red", Production: true, Confirm: true, ReadOnly: true},
				{Name: "staging", Database: "app@db-2:5432/app", Color: "green"},
			}
			b.press("@")
		},
		"production": func(b *bench) { b.env.name, b.env.production, b.env.color = "billing", true, "magenta" },
		"copy":       func(b *bench) { b.press("2", "y") },
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
	for _, size := range []struct{ cells, lines int }{{120, 35}, {80, 24}, {60, 15}, {40, 10}} {
		for name, arrange := range screens() {
			if size.cells == 40 && name != "overview" {
				continue // too small for any of them
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

// Every screen in the colours of each theme, and in ASCII: what people see is
// more than the text. The colours of mono are none.
func TestThemes(t *testing.T) {
	t.Parallel()
	for name, arrange := range screens() {
		b := newBench(80, 24)
		b.frame()
		arrange(b)
		for _, theme := range []theme{themeDark, themeLight, themeMono} {
			b.look.theme = theme
			golden(t, "styled/"+name+"-"+theme.name, strings.ReplaceAll(b.View().Content, "\x1b", "^[")+"\n")
		}
		require.NotRegexp(t, `\^\[\[[39]\dm`, b.View().Content)
		b.env.glyphs = asciiGlyphs
		golden(t, "styled/"+name+"-ascii", b.plain())
	}
}

// The terminal's background chooses the theme, unless the operator has.
func TestThemeChoice(t *testing.T) {
	t.Parallel()
	b := newBench(80, 24)
	require.Contains(t, b.View().Content, sgrRed)
	b.Update(tea.BackgroundColorMsg{Color: color.White})
	require.Equal(t, "light", b.look.theme.name)
	b.press(":", "theme dark", "enter")
	require.Contains(t, b.View().Content, "\x1b[91m")
	b.Update(tea.BackgroundColorMsg{Color: color.White})
	require.Equal(t, "dark", b.look.theme.name)
	b.press(":", "theme pink", "enter")
	require.Contains(t, b.plain(), `no theme "pink"; there are auto, dark, light, mono`)
	b.press("ctrl+u", "theme a", "tab", "enter")
	b.Update(tea.BackgroundColorMsg{Color: color.Black})
	require.Equal(t, "dark", b.look.theme.name)
}

// With --ascii there is nothing but ASCII, and production says what it is in
// words and not just in colour.
func TestASCIIAndProduction(t *testing.T) {
	t.Parallel()
	for _, keys := range []string{"1", "2", "3", "4", "6"} {
		b := newBench(120, 35)
		b.env.glyphs, b.env.name, b.env.production = asciiGlyphs, "prod", true
		b.press(keys)
		frame := strings.NewReplacer("│", "|").Replace(b.plain())
		for _, char := range frame {
			require.Less(t, char, rune(128), "%q in\n%s", char, frame)
		}
		require.Contains(t, frame, " prod ")
	}
}
