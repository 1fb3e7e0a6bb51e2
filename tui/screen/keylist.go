package screen

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// keyList are partition keys of a queue, a page of them: the next one begins where the
// cursor goes beyond the last row, and the page before where it goes above the first.
type keyList struct {
	table
	queue  string   // empty for none
	after  string   // the page begins behind this key
	before []string // where the pages before began
	toEnd  bool     // the cursor goes to the last row of the page when it is there
	known  *keyPage // nil until the database has answered
}

// keyPage is the page that the database has answered with.
type keyPage struct {
	about keysQuestion
	monitor.Keys
}

// keysQuestion tells a page of keys from others.
type keysQuestion struct{ queue, after string }

func (l *keyList) keys() []monitor.Key {
	if l.known == nil || l.known.about != l.question() {
		return nil
	}
	return l.known.Keys.Keys
}

func (l *keyList) Len() int          { return len(l.keys()) }
func (l *keyList) Name(i int) string { return l.keys()[i].Key }

func newKeyList(kit Kit) *keyList {
	l := &keyList{}
	l.table = table{base: base{Kit: kit}, rows: l, panel: data.Keys}
	return l
}

func (l *keyList) question() keysQuestion { return keysQuestion{l.queue, l.after} }

// show begins with the first page of a queue's keys; "" shows none.
func (l *keyList) show(queue string) {
	l.queue, l.before = queue, nil
	l.turn("", false)
}

// want is the question for the page.
func (l *keyList) want() data.Want {
	about := l.question()
	return data.Want{Panel: data.Keys, About: about, Ask: func(ctx context.Context, r data.Reader) (any, error) {
		keys, err := r.Keys(ctx, monitor.KeyQuery{Queue: about.queue, After: about.after, Limit: data.KeysMax})
		return &keyPage{about, keys}, err
	}}
}

// Update takes the page in, beside what tables take.
func (l *keyList) Update(msg tea.Msg) tea.Msg {
	switch msg := msg.(type) {
	case data.Answer:
		if page, ok := msg.Value.(*keyPage); ok && page.about == l.question() {
			l.known = page
			if l.toEnd {
				l.table.move(l.Len())
			}
			l.toEnd = false
		}
	case Scroll:
		return l.move(msg.By)
	}
	return l.table.Update(msg)
}

// move goes on in the page, or from its end to the next one, and from its beginning to the one before.
func (l *keyList) move(by int) tea.Msg {
	if l.known == nil || l.known.about != l.question() { // it is on its way
		return nil
	}
	switch last := max(l.Len()-1, 0); {
	case by > 0 && l.at() == last && l.known.Next != "":
		l.before = append(l.before, l.after)
		l.turn(l.known.Next, false)
	case by < 0 && l.at() == 0 && len(l.before) > 0:
		after := l.before[len(l.before)-1]
		l.before = l.before[:len(l.before)-1]
		l.turn(after, true)
	default:
		return l.table.move(by)
	}
	return nil
}

// turn shows the page behind a key, from its beginning or its end.
func (l *keyList) turn(after string, toEnd bool) {
	height := l.list.Height()
	l.after, l.toEnd, l.list = after, toEnd, widget.List{}
	l.setHeight(l.top, height)
}

// selected is the key under the cursor.
func (l *keyList) selected() *KeySelection {
	selection := &KeySelection{Queue: l.queue}
	if l.Len() > 0 {
		selection.Key = &l.keys()[l.at()]
	}
	return selection
}

// actions are the moves, and to open the jobs of the key.
func (l *keyList) actions() map[string]Action {
	end := func(by int) func() tea.Msg { return func() tea.Msg { return l.table.move(by * l.Len()) } }
	actions := moves(l.move, l.move, l.list.Height, end(-1), end(1))
	actions[command.Open] = Action{Disabled: l.noKey, Run: func() tea.Msg {
		if l.Len() == 0 {
			return nil
		}
		var query filter.Query
		return request.Jobs{Match: query.And(filter.Equal("queue", l.queue), filter.Equal("partition", l.keys()[l.at()].Key)).String()}
	}}
	return actions
}

func (l *keyList) noKey() string {
	if l.Len() == 0 {
		return "no key is selected"
	}
	return ""
}

// view draws the page.
func (l *keyList) view(limits string) View {
	title := "Keys of " + widget.Clean(l.queue)
	lines := []string{" " + l.head(limits)}
	if l.known == nil || l.known.about != l.question() {
		return View{Lines: append(lines, l.Paint.Rule(l.cells, title), "  "+l.waiting(data.Keys)), Cursor: -1}
	}
	columns := widget.ColumnsFor([]widget.Column{
		widget.Left("KEY", 18, 0).UpTo(40), widget.Left("STATE", 9, 0), widget.Right("AVAIL", 6, 0), widget.Right("RUN", 4, 2), widget.Right("OLDEST", 6, 1), widget.Right("WEIGHT", 6, 3), widget.Left("WAITS FOR", 0, 0),
	}, l.cells-2, 20)
	lines = append(lines, l.Paint.Rule(l.cells, title+" "+l.position()), l.Paint.Header(columns, l.cells))
	if l.Len() == 0 {
		return View{Lines: append(lines, "  "+l.Paint.Muted.Render(l.none())), Cursor: -1}
	}
	now := l.Paint.Now()
	first, end := l.list.Shown(l.rows)
	for i := first; i < end; i++ {
		key := l.keys()[i]
		lines = append(lines, l.Paint.Row(columns, l.cells, l.marks(i == l.at()), map[string]string{
			"KEY": widget.Clean(key.Key), "STATE": l.state(key), "AVAIL": format.CappedAt(key.Available, monitor.KeyAvailableMax),
			"RUN": format.Number(key.Running), "WEIGHT": format.KeyWeight(key), "OLDEST": format.KeyWait(key, now), "WAITS FOR": widget.Clean(waitsFor(key, now)),
		}))
	}
	return View{Lines: lines, Cursor: l.cursor()}
}

// keyListHead are the lines above the keys.
const keyListHead = 3

// head says what limits the keys, and which of them are listed.
func (l *keyList) head(limits string) string {
	var parts []string
	if limits != "" {
		parts = append(parts, limits)
	}
	if l.after != "" {
		parts = append(parts, "behind "+widget.Clean(l.after))
	}
	if known := l.known; known != nil && known.about == l.question() {
		if known.Next != "" {
			parts = append(parts, "more follow below the last one")
		}
		if known.MoreRun {
			parts = append(parts, "of what runs, only the "+format.Number(monitor.KeyRunsMax)+" jobs counted that were claimed first")
		}
	}
	return strings.Join(parts, "; ")
}

// none is what stands where no key is listed.
func (l *keyList) none() string {
	if l.after != "" || l.known.Next != "" {
		return "none here"
	}
	return "no job with a partition key is available or runs, and none is paused or has a weight"
}

// state is that of the key, in the style that it deserves.
func (l *keyList) state(key monitor.Key) string {
	switch {
	case key.State == monitor.KeyHeld && key.HeadState == "failed":
		return l.Paint.Alarm.Render(string(key.State))
	case key.State == monitor.KeyHeld, key.State == monitor.KeyPaused:
		return l.Paint.Warn.Render(string(key.State))
	}
	return string(key.State)
}

// waitsFor is what the key waits for: whoever has paused it, its head, or its rate. Empty for nothing.
func waitsFor(key monitor.Key, now time.Time) string {
	if key.PausedAt != nil {
		return "paused " + format.KeyPause(key, now)
	}
	return format.KeyWaitsFor(key, now)
}

// told is the page in words.
func (l *keyList) told(limits string) []string {
	lines := []string{"keys of " + widget.Clean(l.queue)}
	if head := l.head(limits); head != "" {
		lines[0] += ": " + head
	}
	now := l.Paint.Now()
	for i, key := range l.keys() {
		text := fmt.Sprintf("%s, %s, %s available, %s running", widget.Clean(key.Key), key.State, format.CappedAt(key.Available, monitor.KeyAvailableMax), format.Number(key.Running))
		if key.OldestRunAt != nil {
			text += ", the oldest has waited for " + format.KeyWait(key, now)
		}
		if key.Weight > 1 {
			text += ", weight " + format.KeyWeight(key)
		}
		if waits := waitsFor(key, now); waits != "" {
			text += ", " + widget.Clean(waits)
		}
		lines = append(lines, toldRow(i, l.Len(), i == l.at(), text))
	}
	return lines
}
