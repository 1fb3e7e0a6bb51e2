package polling

import (
	"context"
	"fmt"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/data"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// want is a question about something whose answer is that.
func want(panel data.Panel, about any) []data.Want {
	return []data.Want{{Panel: panel, About: about, Ask: func(context.Context, data.Reader) (any, error) { return about, nil }}}
}

// A slow database is asked less often, and one that is away more rarely still.
func TestWaits(t *testing.T) {
	t.Parallel()
	p := New(func() time.Time { return noon })
	wait := func(took time.Duration, err error) time.Duration {
		_, fresh := p.Take(Loaded{Panel: data.Queues, Took: took, Err: err})
		require.True(t, fresh)
		return p.polls[data.Queues].due.Sub(noon)
	}
	require.Equal(t, 2*time.Second, wait(time.Millisecond, nil))
	require.Equal(t, 20*time.Second, wait(250*time.Millisecond, nil))
	require.Equal(t, 30*time.Second, wait(5*time.Second, nil))
	require.Equal(t, 30*time.Second, wait(2*time.Second, jobq.ErrTimeout))
	require.False(t, p.Offline(), "a slow query is no dead database")
	require.Equal(t, time.Second, wait(0, jobq.ErrUnavailable))
	require.True(t, p.Offline())
	for range 10 {
		wait(0, jobq.ErrUnavailable)
	}
	require.Equal(t, 15*time.Second, wait(0, jobq.ErrUnavailable))
	p.polls[data.Page].due = noon.Add(time.Hour)
	require.Equal(t, 2*time.Second, wait(0, nil))
	require.False(t, p.Offline())
	require.Zero(t, p.polls[data.Page].due, "it is back: all is asked anew")
	p.Blurred = true
	require.Equal(t, 20*time.Second, wait(0, nil))
	p.Take(Loaded{Panel: data.Session, Err: fmt.Errorf("%w: %w", jobq.ErrTimeout, context.DeadlineExceeded)})
	require.True(t, p.Offline(), "no answer to the smallest question is a dead database")
}

// The errors are asked for again as soon as the jobs of a list are: a screen that says what is to be tried
// again must not say it long after all have failed.
func TestErrorsAreAsFreshAsJobs(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, floors[data.Errors], floors[data.Page])
}

// Of a panel one query is under way; another question takes its place at once, and
// the answer to the one before is dropped.
func TestOneQueryIsUnderWay(t *testing.T) {
	t.Parallel()
	p := New(func() time.Time { return noon })
	first := p.Ask(nil, want(data.Page, "first"))
	require.NotNil(t, first)
	require.True(t, p.Waits(want(data.Page, "first")))
	require.Nil(t, p.Ask(nil, want(data.Page, "first")))
	second := p.Ask(nil, want(data.Page, "second"))
	require.NotNil(t, second)
	answer := func(query tea.Cmd) (data.Answer, bool) { return p.Take(query().(Loaded)) }
	_, fresh := answer(first)
	require.False(t, fresh)
	got, fresh := answer(second)
	require.True(t, fresh)
	require.Equal(t, "second", got.Value)
	require.Nil(t, p.Ask(nil, want(data.Page, "second")), "it is not due yet")
	p.Renew(data.Page)
	stale := p.Ask(nil, want(data.Page, "second"))
	p.Reset()
	_, fresh = answer(stale)
	require.False(t, fresh, "of the database before")
}
