package tui

import (
	"fmt"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/widget"
)

// overlay is what lies over the screen and takes the keys.
type overlay interface {
	key(m *Model, msg tea.KeyPressMsg) tea.Cmd
	view(m *Model) []string
}

// box draws lines in a frame that leaves something of the screen to be seen.
func (m *Model) box(title string, lines []string) []string {
	return m.paint.Box(title, lines, m.width-2)
}

// confirmQuiet is how long a question hears no keys: those typed before it was
// seen are no answer.
const confirmQuiet = 400 * time.Millisecond

// typed is what must be typed before something is done. The zero value asks for y.
type typed struct {
	text    string
	meaning string // of the text: "the number of jobs"
	effect  string // of enter: "delete them"
}

// confirmOverlay asks before something is done.
type confirmOverlay struct {
	title   string
	details []string
	typed   typed
	input   string
	since   time.Time
	run     tea.Cmd
}

// ask asks, and begins the command on a yes. With typed, that must be typed.
func (m *Model) ask(title string, details []string, typed typed, run tea.Cmd) {
	m.overlay = &confirmOverlay{title: title, details: details, typed: typed, since: m.env.now(), run: run}
}

func (o *confirmOverlay) yes(m *Model) tea.Cmd {
	m.overlay = nil
	return m.begin(o.run)
}

func (o *confirmOverlay) no(m *Model) {
	m.overlay = nil
	m.say("nothing was done")
}

func (o *confirmOverlay) key(m *Model, msg tea.KeyPressMsg) tea.Cmd {
	name := msg.String()
	if name == "esc" {
		o.no(m)
		return nil
	}
	if m.env.now().Sub(o.since) < confirmQuiet {
		return nil
	}
	if o.typed.text == "" {
		if name == "y" || name == "Y" {
			return o.yes(m)
		}
		o.no(m)
		return nil
	}
	switch {
	case name == "enter" && o.input == o.typed.text:
		return o.yes(m)
	case name == "backspace" && o.input != "":
		o.input = o.input[:len(o.input)-1]
	case len(msg.Text) == 1 && len(o.input) < 20:
		o.input += msg.Text
	}
	return nil
}

func (o *confirmOverlay) view(m *Model) []string {
	lines := []string{fmt.Sprintf("database  %s  %s", m.env.name, widget.Clean(m.env.host))}
	lines = append(lines, o.details...)
	lines = append(lines, "")
	if o.typed.text == "" {
		lines = append(lines, "y yes    any other key: no")
	} else {
		what := o.typed.text
		if o.typed.meaning != "" {
			what += ", " + o.typed.meaning + ","
		}
		lines = append(lines, "Type "+what, fmt.Sprintf("and press enter to %s: %s_", o.typed.effect, o.input), "esc: do nothing")
	}
	return m.box(o.title, lines)
}

// noteOverlay says what is too long for a line, until a key is pressed.
type noteOverlay struct {
	title string
	lines []string
	since time.Time
}

func (o *noteOverlay) key(m *Model, _ tea.KeyPressMsg) tea.Cmd {
	if m.env.now().Sub(o.since) >= confirmQuiet {
		m.overlay = nil
	}
	return nil
}

func (o *noteOverlay) view(m *Model) []string {
	return m.box(o.title, append(slices.Clone(o.lines), "", m.paint.Muted.Render("any key: leave")))
}

// progressOverlay shows a bulk action under way.
type progressOverlay struct{}

func (o *progressOverlay) key(m *Model, msg tea.KeyPressMsg) tea.Cmd {
	if msg.String() == "esc" && m.bulk != nil {
		m.bulk.stop()
	}
	return nil
}

func (o *progressOverlay) view(m *Model) []string {
	if m.bulk == nil {
		return nil
	}
	stop := "esc: stop after this batch; " + m.keyOf("resume") + " on the audit screen goes on"
	progress := m.bulk.progress
	done, refused := format.Number(int64(progress.Done)), format.Number(int64(progress.Refused))
	if m.bulk.total == 0 {
		return m.box(string(m.bulk.action), []string{fmt.Sprintf("%s done, %s not", done, refused), stop})
	}
	share := min(float64(progress.Done+progress.Refused)/float64(m.bulk.total), 1)
	return m.box(string(m.bulk.action), []string{
		m.paint.Progress(share, 40), fmt.Sprintf("%s of %s done, %s not", done, format.Capped(m.bulk.total), refused), stop,
	})
}
