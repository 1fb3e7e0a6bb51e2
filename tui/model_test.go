package tui

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/polling"
	"github.com/jobq-dev/jobq/tui/screen"
)

// What keys do to the database: keys in, writes out.
func TestKeysAndWrites(t *testing.T) {
	t.Parallel()
	const first = "48213911:failed/5"
	for name, test := range map[string]struct {
		keys []string
		want []string
	}{
		"requeue one":               {[]string{Jobs, Requeue}, []string{"requeue " + first}},
		"requeue in the detail":     {[]string{Jobs, Open, Requeue}, []string{"requeue " + first}},
		"requeue and undo":          {[]string{Jobs, Requeue, Undo}, []string{"requeue " + first, "undo 1"}},
		"nothing to undo":           {[]string{Jobs, Undo}, nil},
		"delete asks":               {[]string{Jobs, Delete}, nil},
		"delete, no":                {[]string{Jobs, Delete, "wait", No}, nil},
		"delete, typed ahead":       {[]string{Jobs, Delete, Yes}, nil},
		"delete, yes":               {[]string{Jobs, Delete, "wait", Yes}, []string{"delete " + first}},
		"cancel what has failed":    {[]string{Jobs, Cancel}, nil},
		"marks ask":                 {[]string{Jobs, Mark, Mark, Requeue}, nil},
		"marks, yes":                {[]string{Jobs, Mark, Mark, Requeue, "wait", Yes}, []string{"requeue " + first + " 48213904:failed/5"}},
		"marks taken back":          {[]string{Jobs, Mark, Up, Mark, Requeue}, []string{"requeue 48213904:failed/5"}},
		"esc drops marks":           {[]string{Jobs, Mark, Back, Requeue}, []string{"requeue 48213904:failed/5"}},
		"all, wrong number":         {[]string{Jobs, SelectAll, Requeue, "wait", "25", Accept}, nil},
		"all, right number":         {[]string{Jobs, Filter, "kind:Send*", Accept, SelectAll, Requeue, "wait", "250", Accept}, []string{"bulk requeue kind:Send*"}},
		"a group of errors":         {[]string{Errors, Down, Requeue, "3", "wait", "250", Accept, Undo}, []string{"bulk requeue state:failed queue:email kind:SendReceipt err:=timeout age:<1d", "undo 7"}},
		"a sample of a group":       {[]string{Errors, Down, Requeue, Accept, "10", Accept, Undo}, []string{"bulk requeue state:failed queue:email kind:SendReceipt err:=timeout age:<1d max 10", "undo 7"}},
		"a sample, miscounted":      {[]string{Errors, Down, Requeue, "1", "250", Accept, Leave}, nil},
		"a group at a rate":         {[]string{Errors, Down, Requeue, "2", Accept, "250", Accept}, []string{"bulk requeue state:failed queue:email kind:SendReceipt err:=timeout age:<1d 10/s"}},
		"a group at another rate":   {[]string{Errors, Down, Requeue, "2", "backspace", "backspace", "backspace", "backspace", Accept, "4", Accept, "250", Accept}, []string{"bulk requeue state:failed queue:email kind:SendReceipt err:=timeout age:<1d 4/s"}},
		"a group, not at all":       {[]string{Errors, Down, Requeue, Leave}, nil},
		"all, undo":                 {[]string{Jobs, SelectAll, Requeue, "wait", "250", Accept, Undo}, []string{"bulk requeue ", "undo 7"}},
		"pause":                     {[]string{Queues, Pause, "too many failures", Accept}, []string{"pause email: too many failures"}},
		"pause, no":                 {[]string{Queues, Pause, Leave}, nil},
		"resume":                    {[]string{Queues, Down, Pause}, []string{"resume billing"}},
		"pause on the overview":     {[]string{Pause, Accept}, []string{"pause email: "}},
		"keys in a text do nothing": {[]string{Jobs, Filter, "rDcpu", Leave}, nil},
		"by the palette":            {[]string{Jobs, Palette, "requeue", Accept}, []string{"requeue " + first}},
		"by the help":               {[]string{Jobs, Help, "run again", Accept}, []string{"requeue " + first}},
		"no delete on the queues":   {[]string{Queues, Delete, Palette, "delete", Accept}, nil},
		"a job by its number":       {[]string{Palette, "job 48213890", Accept, Requeue}, []string{"requeue 48213890:failed/5"}},
		"older job, then requeue":   {[]string{Jobs, Open, Older, Requeue}, []string{"requeue 48213904:failed/5"}},
		"the end of the list":       {[]string{Jobs, End, Requeue}, []string{"requeue 48212168:failed/5"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(120, 35)
			b.frame()
			for _, key := range test.keys {
				if key == "wait" {
					b.tick(time.Second)
					continue
				}
				b.press(key)
			}
			require.Equal(t, test.want, b.fake.written, b.plain())
		})
	}
}

// Production asks for what elsewhere is done at once.
func TestProductionAsks(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{Jobs, Requeue}, {Queues, Pause, Accept}} {
		b := newBench(120, 35)
		b.env.confirm = true
		b.press(keys...)
		require.Empty(t, b.fake.written)
		b.tick(time.Second)
		b.press(Yes)
		require.Len(t, b.fake.written, 1)
	}
	b := newBench(120, 35)
	b.env.confirm = true
	b.press(Jobs, Delete)
	b.tick(time.Second)
	b.press("1", Accept)
	require.Equal(t, []string{"delete 48213911:failed/5"}, b.fake.written)
}

// Nothing that changes anything works where nothing may be changed, from any
// screen, and the key says why.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	for name, forbid := range map[string]func(b *bench){
		"read-only, as it was started": func(b *bench) { b.env.noWrite = true },
		"read-only: a standby":         func(b *bench) { b.fake.session.ReadOnly = true; b.facts.Session = &b.fake.session },
		"role ana may not change":      func(b *bench) { b.fake.session.MayAct = false; b.facts.Session = &b.fake.session },
		"does not answer":              func(b *bench) { b.answer(polling.Loaded{Panel: data.Session, Err: jobq.ErrUnavailable}) },
	} {
		for _, start := range []string{Overview, Jobs, Queues, Workers, Schedules, Audit} {
			for _, c := range command.All() {
				if c.Class == command.Reading {
					continue
				}
				b := newBench(120, 35)
				b.acted(5)
				b.press(start)
				forbid(b)
				if found := b.env.commands.For(string(b.at), c.Keys[0]); found == nil || found.ID != c.ID {
					continue
				}
				b.frozen = true // so that the bench asks nothing, which would mend it
				b.press(c.Keys[0])
				require.Nil(t, b.overlay, c.ID)
				require.Empty(t, b.fake.written, c.ID)
				require.Contains(t, b.toast, name, c.ID)
			}
		}
	}
}

// Every destructive command asks, from every screen it can be given on.
func TestDestructiveAsks(t *testing.T) {
	t.Parallel()
	for _, c := range command.All() {
		if c.Class != command.Destructive {
			continue
		}
		starts := [][]string{{Jobs}, {Jobs, Open}, {Jobs, Mark, Mark}, {Jobs, SelectAll}}
		switch {
		case slices.Equal(c.Screens, []string{command.Job}):
			starts = [][]string{{Jobs, Open}}
		case c.ID == command.RequeueWithDependents: // not for all that match
			starts = starts[:3]
		case slices.Contains(c.Screens, command.Workers):
			starts = [][]string{{Workers, Down}}
		case slices.Contains(c.Screens, command.Audit):
			starts = [][]string{{Audit}}
		}
		for _, keys := range starts {
			b := newBench(120, 35)
			b.fake.audit = []monitor.AuditEntry{stoppedBulk}
			b.fake.steps = someSteps()
			b.press(keys...)
			b.press(c.Keys[0])
			if _, chooses := b.overlay.(*overlay.Choice); chooses {
				b.press(Accept)
			}
			require.IsType(t, &overlay.Confirm{}, b.overlay, c.ID)
			require.Empty(t, b.fake.written)
		}
	}
}

// Whatever keys are pressed and whatever the database and the workers say, in
// any order and at any size, the screen keeps its shape, marks are of known
// jobs, and the job under the cursor is another one only because of a key.
func TestAnything(t *testing.T) {
	t.Parallel()
	for seed := range uint64(15) {
		random := rand.New(rand.NewPCG(seed, 7)) // #nosec G404 -- a test
		b := newBench(120, 35)
		for step := range 150 {
			before := b.jobs().Cursor
			keyed := anything(b, random)
			frame := b.frame()
			lines := strings.Split(frame, "\n")
			where := fmt.Sprintf("seed %d step %d", seed, step)
			require.Len(t, lines, max(b.height, 1), where)
			for _, line := range lines {
				require.LessOrEqual(t, ansi.StringWidth(line), b.width, "%s: %q", where, line)
				require.NotContains(t, strings.ReplaceAll(line, "\x1b[", ""), "\x1b", where)
			}
			if !keyed && before != 0 && b.jobs().Cursor != 0 {
				require.Equal(t, before, b.jobs().Cursor, where)
			}
		}
	}
}

// anything does one of the things that can happen, and says whether it was a key.
func anything(b *bench, random *rand.Rand) bool {
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	switch random.IntN(8) {
	case 0, 1, 2:
		var keys []string
		for _, c := range command.All() {
			keys = append(keys, c.Keys...)
		}
		keys = append(keys, Yes, No, "1", Accept, Leave, "backspace", "ä", "state:failed", Complete)
		key := pick(keys...)
		b.press(key)
		return true
	case 3:
		b.Update(tea.WindowSizeMsg{Width: random.IntN(200), Height: random.IntN(60)})
	case 4:
		b.tick(time.Duration(random.IntN(8000)) * time.Millisecond)
	case 5: // the database changes
		at := random.IntN(len(b.fake.jobs))
		job := b.fake.jobs[at]
		switch random.IntN(4) {
		case 0:
			b.fake.jobs = slices.Delete(b.fake.jobs, at, at+1)
		case 1:
			newer := *job
			newer.ID = b.fake.jobs[0].ID + 1
			newer.LastError = pick("\x1b[31mred", "\u202eevil", strings.Repeat("long ", 5000), "日本語日本語", "\r\n\x00")
			b.fake.jobs = append([]*jobq.Job{&newer}, b.fake.jobs...)
		default:
			job.State = jobq.States()[random.IntN(6)]
			job.Kind = pick("\x9b31m", "Send", "日本")
		}
		if len(b.fake.jobs) == 0 {
			b.fake.jobs = newFake().jobs
		}
	case 6:
		events := []data.Event{{
			ID: b.fake.jobs[random.IntN(len(b.fake.jobs))].ID, State: jobq.States()[random.IntN(6)], Attempts: random.IntN(9),
			Queue: "q\x1b]0;x\x07", Kind: "k\n", Percent: float32(random.IntN(101)), Stage: pick("", "s\x1b[2J"),
		}}
		b.Update(feedMsg{At: b.fake.now, Events: events, Ended: map[string]data.Ended{"q": {Completed: 1, Failed: 2}}, Gap: random.IntN(2) == 0})
	case 7:
		b.fake.err = []error{nil, jobq.ErrUnavailable, jobq.ErrTimeout, errors.New("\x1b[31mERROR: evil\n"), nil, nil}[random.IntN(6)]
	}
	return false
}

// A row whose job changes stays where it is, dimmed and with its new state,
// until the cursor moves off it or a while has passed.
func TestRowsStay(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Filter, "state:failed", Accept, Down)
	id := b.jobs().Cursor
	b.Update(feedMsg{At: b.fake.now, Events: []data.Event{{ID: id, Token: 6, State: jobq.StateCompleted, Attempts: 5, Took: time.Second}}})
	require.Contains(t, b.plain(), "→ completed")
	require.Equal(t, []operator.Target{{ID: id, State: jobq.StateCompleted, LeaseToken: 6}}, b.selected().Targets)
	b.fake.find(id).State = jobq.StateCompleted
	b.tick(10 * time.Second)
	require.Equal(t, id, b.jobs().Cursor, "it stays under the cursor")
	b.press(Down)
	require.False(t, b.shows(id))

	b.press(Up, Up, Down) // new jobs wait above
	newer := *b.fake.jobs[0]
	newer.ID++
	b.fake.jobs = append([]*jobq.Job{&newer}, b.fake.jobs...)
	b.tick(3 * time.Second)
	require.Contains(t, b.plain(), "▲ 1 new above ("+Top)
	b.press(Top)
	b.tick(3 * time.Second)
	require.Equal(t, newer.ID, b.jobs().Cursor)
}

// A slow query is no dead database, no answer to the smallest question is; and when
// the database is back, all is asked anew.
func TestDatabaseComesBack(t *testing.T) {
	t.Parallel()
	b := newBench(80, 24)
	b.answer(polling.Loaded{Panel: data.Queues, Err: jobq.ErrTimeout})
	require.False(t, b.polling.Offline())
	b.answer(polling.Loaded{Panel: data.Session, Err: fmt.Errorf("%w: %w", jobq.ErrTimeout, context.DeadlineExceeded)})
	require.True(t, b.polling.Offline())
	require.Nil(t, b.poll())
	b.answer(polling.Loaded{Panel: data.Session, Value: &b.fake.session})
	require.False(t, b.polling.Offline())
	require.NotNil(t, b.poll())
}

// A UI that nobody has looked at for long asks nothing.
func TestNobodyLooks(t *testing.T) {
	t.Parallel()
	b := newBench(80, 24)
	b.Update(tea.BlurMsg{})
	b.fake.now = b.fake.now.Add(9 * time.Minute)
	require.NotNil(t, b.poll())
	b.fake.now = b.fake.now.Add(2 * time.Minute)
	b.polling.Reset()
	require.Nil(t, b.poll())
	b.Update(tea.FocusMsg{})
	b.polling.Reset()
	require.NotNil(t, b.poll())
}

// A filter can be typed, is checked, and its state chooses the tab.
func TestFilterInput(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Filter, "foo:bar", Accept)
	require.Contains(t, b.plain(), `no field "foo"`)
	b.press("ctrl+u", "que", Complete, "email", Accept)
	require.Equal(t, screen.Jobs, b.at)
	require.Equal(t, "queue:email", b.match())
	b.press(Filter, "ctrl+u", "state:failed queue:email", Accept)
	require.Contains(t, b.plain(), "[Failed")
	require.Equal(t, "list 'state:failed queue:email' --sort finished", b.jobs().List)
	b.press(Back)
	require.Empty(t, b.match())
}

// A filter that takes too long on all jobs is tried on the newest ones, and
// the screen says so.
func TestFilterTakesTooLong(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Filter, "kind:Send*", Accept)
	b.answer(polling.Loaded{Panel: data.Page, Err: jobq.ErrTimeout})
	b.tick(time.Second)
	require.Contains(t, b.plain(), "of all jobs searched, the newest first")
	require.True(t, slices.ContainsFunc(b.fake.filters, func(f jobq.Filter) bool { return f.Match == "kind:Send* id:>47813911 id:<=48213911" }))
	b.press(Back)
	require.NotContains(t, b.plain(), "searched")
}

// The output of a run under way is followed, and made safe to show; the
// records of the runs before can be looked at meanwhile.
func TestOutputIsFollowed(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	job := b.fake.jobs[0]
	job.State, job.FinishedAt, job.Attempts = jobq.StateRunning, nil, 4
	b.press(Jobs, Open)
	b.tick(2 * time.Second)
	b.tick(2 * time.Second)
	frame := b.plain()
	require.Contains(t, frame, "Output  following  ")
	require.Contains(t, frame, "frame 1␛[2J\n frame 2␛[2J")
	require.NotContains(t, b.frame(), "\x1b[2J")
	b.press(Down)
	require.Contains(t, b.plain(), "Output of run 2")
	job.LeaseToken++
	b.press(Up)
	b.tick(2 * time.Second)
	require.NotContains(t, b.plain(), "frame 1␛", "of the run before")
}

// Each command does something on each screen that it can be given on: one part of
// the UI has an action for it; and no part has an action that no command leads to.
func TestCommandsHaveActions(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	everywhere := []map[string]screen.Action{b.acting.Actions(screen.Selection{}), b.editing.Actions(screen.Selection{}), b.actions()}
	for _, name := range screen.Names() {
		b.at = name
		for _, c := range command.All() {
			if c.On(string(name)) {
				_, found := b.action(c)
				require.True(t, found, "%s on %s", c.ID, name)
			}
		}
		for id := range b.screens[name].Actions() {
			c := command.All().Find(id)
			require.NotNil(t, c, id)
			require.True(t, c.On(string(name)), "%s of %s", id, name)
		}
	}
	for _, actions := range everywhere {
		for id := range actions {
			require.NotNil(t, command.All().Find(id), id)
		}
	}
}

// When runs fail, the groups of errors are asked for again within a second.
func TestFailuresAskForErrors(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	hear := func(ended data.Ended) {
		_, next := b.Update(feedMsg{At: b.fake.now, Ended: map[string]data.Ended{"email": ended}})
		b.do(next)
	}
	b.press(Errors)
	b.fake.failures = slices.Clone(b.fake.failures)
	b.fake.failures[0].Failed, b.fake.failures[0].Retrying = 1021, 0
	b.tick(500 * time.Millisecond)
	hear(data.Ended{Completed: 1})
	b.tick(time.Second)
	require.Contains(t, b.plain(), "61 retrying", "nothing has failed")
	hear(data.Ended{Failed: 61})
	b.tick(250 * time.Millisecond)
	require.NotContains(t, b.plain(), "61 retrying")
}
