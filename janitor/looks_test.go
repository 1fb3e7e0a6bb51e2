package janitor_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/janitor"
)

// The janitor frees what waits for a job that is over, and cancels what waits for that,
// whatever isolation its role has by default. A leader hears of it: its own looks are an hour
// apart here.
func TestFreesWhatWaits(t *testing.T) {
	t.Parallel()
	for mode, scan := range map[janitor.Mode]time.Duration{janitor.ModeLeader: time.Hour, janitor.ModeAny: 20 * time.Millisecond} {
		for _, isolation := range []string{"read committed", "repeatable read"} {
			t.Run(string(mode)+", "+isolation, func(t *testing.T) {
				t.Parallel()
				f := setUp(t)
				f.exec(fmt.Sprintf(`do $$ begin execute format('alter database %%I set default_transaction_isolation = %%L', current_database(), '%s'); end $$`, isolation))
				f.pool.Reset() // its connections have the default of before
				f.start(janitor.Config{Mode: mode, ScanInterval: scan})
				f.freesWhatWaits()
			})
		}
	}
}

func (f *fixture) freesWhatWaits() {
	f.Helper()
	ctx := context.Background()
	for range 3 { // each is told anew
		var graph jobq.Graph
		graph.Add("first", jobq.RawArgs{Name: "k"}, nil)
		graph.Add("always", jobq.RawArgs{Name: "k"}, &jobq.EnqueueOptions{OnParentFailure: jobq.ParentFailureRun}, "first")
		graph.Add("never", jobq.RawArgs{Name: "k"}, nil, "first")
		graph.Add("later", jobq.RawArgs{Name: "k"}, &jobq.EnqueueOptions{OnParentFailure: jobq.ParentFailureRun, Delay: time.Hour}, "never")
		jobs, err := f.client.EnqueueGraph(ctx, &graph)
		require.NoError(f, err)
		_, err = f.client.Cancel(ctx, jobs["first"].ID)
		require.NoError(f, err)
		f.eventually("select count(*) from jobq.job where state = 'available' and id = "+fmt.Sprint(jobs["always"].ID), 1)
		f.eventually("select count(*) from jobq.job where state = 'cancelled' and id = "+fmt.Sprint(jobs["never"].ID), 1)
		f.eventually("select count(*) from jobq.job where state = 'scheduled' and id = "+fmt.Sprint(jobs["later"].ID), 1)
	}
	f.eventually("select count(*) from jobq.dependency_look where not is_new", 0)
}

// A look begins a little before what the last one has come to, and each step of it past what
// was dealt with; and at the start every ten seconds, or when something is told that was due
// long before, but not twice within a second.
func TestWhereLooksBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lateCommit = 2 * time.Second
		began := time.Now()
		var looks janitor.Looks
		require.Zero(t, looks.Begin())
		require.Equal(t, began.Add(-lateCommit), looks.Stepped(began))
		require.Equal(t, began.Add(time.Minute-lateCommit), looks.Stepped(began.Add(time.Minute)))
		require.Equal(t, began.Add(time.Minute-lateCommit), looks.Begin())
		looks.Heard(began)
		require.Equal(t, began.Add(time.Minute-lateCommit), looks.Begin(), "too soon")
		require.NoError(t, sleep.For(t.Context(), time.Second))
		looks.Heard(began.Add(time.Minute))
		require.Equal(t, began.Add(time.Minute-lateCommit), looks.Begin(), "the usual look reaches it")
		looks.Heard(began)
		require.Zero(t, looks.Begin())
		require.NotZero(t, looks.Begin())
		require.NoError(t, sleep.For(t.Context(), 10*time.Second))
		require.Zero(t, looks.Begin())
	})
}
