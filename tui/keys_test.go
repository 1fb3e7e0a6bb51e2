package tui

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/overlay"
)

// ownKeys gives every command another key than its own: K- and its id.
func (b *bench) ownKeys(t *testing.T) {
	t.Helper()
	keys := make(map[string][]string)
	for _, c := range command.All() {
		keys[c.ID] = []string{"K-" + c.ID}
	}
	var err error
	b.env.commands, err = command.WithKeys(keys)
	require.NoError(t, err)
}

// command runs commands by their ids, whatever their keys are.
func (b *bench) command(ids ...string) {
	for _, id := range ids {
		b.do(b.runNamed(id))
		b.do(b.poll())
		b.frame()
	}
}

// Texts that name a key name the operator's own: toasts, questions, hints, and
// what a screen says when it is empty.
func TestTextsNameOwnKeys(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		commands []string
		wants    []string
	}{
		"tabs":         {nil, []string{"K-overview Over K-jobs Jobs K-queues Queues K-workers Workers K-schedules Sched K-errors Errors K-audit Audit", "K-help help"}},
		"list":         {[]string{"jobs"}, []string{"K-filter to filter"}},
		"requeue":      {[]string{"jobs", "requeue"}, []string{"K-undo undo"}},
		"requeue many": {[]string{"jobs", "mark", "mark", "requeue"}, []string{"K-undo undoes it"}},
		"delete":       {[]string{"jobs", "delete"}, []string{"K-undo brings it back"}},
		"refused edit": {[]string{"jobs", "down", "edit"}, []string{"K-clone makes a new one"}},
		"edit":         {[]string{"jobs", "edit"}, []string{"K-undo undoes it"}},
		"clone":        {[]string{"jobs", "clone"}, []string{"K-undo removes it"}},
		"mouse":        {[]string{"mouse"}, []string{"K-mouse gives it back"}},
		"search":       {[]string{"jobs", "open", "next-match"}, []string{"K-filter begins one", "K-back back"}},
		"range":        {[]string{"jobs", "range"}, []string{"K-range ends it, K-back drops the marks"}},
	} {
		b := newEditBench(`"priority": 0`, `"priority": -5`)
		b.press(Overview)
		b.ownKeys(t)
		b.command(test.commands...)
		for _, want := range test.wants {
			require.Contains(t, b.plain(), want, name)
		}
	}

	b := newBench(120, 35)
	b.ownKeys(t)
	b.command("jobs", "down")
	newer := *b.fake.jobs[0]
	newer.ID++
	b.fake.jobs = append([]*jobq.Job{&newer}, b.fake.jobs...)
	b.tick(3 * time.Second)
	require.Contains(t, b.plain(), "1 new above (K-top jumps")
	b.fake.jobs = nil
	b.request(filtered("queue:none"))
	b.tick(time.Second)
	require.Contains(t, b.plain(), "K-back clears the filter")
	b.fake.jobs = newFake().jobs
	b.tick(time.Minute)
	b.command("select-all", "requeue")
	b.press("250")
	work := b.hold(Accept)
	require.Contains(t, b.plain(), "K-resume on the audit screen goes on")
	b.fake.err = context.Canceled
	b.do(work)
	require.Contains(t, b.toast, "K-resume on the audit screen goes on with action 7   K-undo undo")
}

// Plain mode names a command whose keys are all numbers, which are rows there,
// by its id; and what is new above is reached with the operator's own key.
func TestPlainNamesOwnKeys(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.ownKeys(t)
	b.env.plain = true
	b.restyle()
	var out bytes.Buffer
	p := newPlain(b.Model, &out, nil)
	b.fake.jobs = newFake().jobs[1:]
	b.command("jobs", "down")
	b.fake.jobs = newFake().jobs
	b.tick(3 * time.Second)
	p.tell()
	require.Contains(t, out.String(), "there are new jobs above; K-top goes there")
	b.env.commands = command.All()
	require.Equal(t, "audit", b.env.keyOf("audit"))
	require.Equal(t, Undo, b.env.keyOf("undo"))
}

// What a command is for says nothing of keys, which are named beside it and can
// be others; and the help is left with the key that opened it.
func TestHelpNamesNoKeys(t *testing.T) {
	t.Parallel()
	for _, c := range command.All() {
		require.NotRegexp(t, "(^|[ (`:])[B-Zb-z@?/:*\\[\\]](\\s|[,;)`]|$)", c.Help, c.ID)
	}
	b := newBench(120, 35)
	var err error
	b.env.commands, err = command.WithKeys(map[string][]string{"help": {"H"}})
	require.NoError(t, err)
	b.press("H")
	require.IsType(t, &overlay.Help{}, b.overlay)
	b.press(Help)
	require.NotNil(t, b.overlay)
	b.press("backspace", "H")
	require.Nil(t, b.overlay)
}
