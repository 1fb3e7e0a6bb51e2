package tests

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// A worker announces that it waits, looks which transactions are open, and
// claims; an insert begins, inserts, and commits. In whatever order these steps
// come, and at whatever isolation level, the job is found: by the claim, by a
// notification, or because its transaction was seen open, and then by the claim
// after its end. It makes no difference that a worker waits for jobs of another queue.
func TestNoInterleavingLosesAWakeUp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		level      pgx.TxIsoLevel
		otherWaits bool
	}{{pgx.ReadCommitted, false}, {pgx.ReadCommitted, true}, {pgx.RepeatableRead, false}, {pgx.Serializable, false}} {
		for _, order := range interleavings("bic", "aoc") {
			t.Run(fmt.Sprintf("%s %t %s", test.level, test.otherWaits, order), func(t *testing.T) {
				t.Parallel()
				w := newWaiter(t, test.level)
				if test.otherWaits {
					_, err := w.queries.WaitAnnounce(w.ctx, w.otherGroup(), 3600)
					require.NoError(t, err)
				}
				for _, step := range order {
					w.step(step)
				}
				w.judge()
			})
		}
	}
}

// otherGroup is a queue whose announcements are no announcements for the queue default.
func (q *queue) otherGroup() string {
	q.Helper()
	return q.text("select 'q' || i from generate_series(1, 100) i where jobq.waiting_group('q' || i) <> jobq.waiting_group('default') limit 1")
}

// interleavings are all merges of two sequences that keep the order of each;
// steps of the second are in capitals.
func interleavings(first, second string) []string {
	upper := func(s string) string { return string(s[0] - 'a' + 'A') }
	switch {
	case second == "":
		return []string{first}
	case first == "":
		return []string{upper(second) + interleavings("", second[1:])[0]}
	}
	var all []string
	for _, rest := range interleavings(first[1:], second) {
		all = append(all, first[:1]+rest)
	}
	for _, rest := range interleavings(first, second[1:]) {
		all = append(all, upper(second)+rest)
	}
	return all
}

// waiter is a worker and an insert, step by step.
type waiter struct {
	*queue
	ctx      context.Context
	level    pgx.TxIsoLevel
	listener *pgx.Conn
	insert   pgx.Tx
	xid      string // of the insert's transaction
	open     []string
	claimed  int
	hint     bool // by notification or by an open transaction: the worker claims again
}

func newWaiter(t *testing.T, level pgx.TxIsoLevel) *waiter {
	t.Helper()
	w := &waiter{queue: setUp(t), ctx: context.Background(), level: level}
	var err error
	w.listener, err = pgx.Connect(w.ctx, w.pool.Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.listener.Close(context.Background()) })
	_, err = w.listener.Exec(w.ctx, "listen done; listen "+db.Channel("jobq", db.TopicWork))
	require.NoError(t, err)
	return w
}

func (w *waiter) step(step rune) {
	w.Helper()
	var err error
	switch step {
	case 'b': // with a snapshot, which the stricter levels keep
		w.insert, err = w.pool.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: w.level})
		require.NoError(w, err)
		_, err = w.insert.Exec(w.ctx, "select count(*) from jobq.pending")
	case 'i':
		err = w.insert.QueryRow(w.ctx, "select pg_current_xact_id()::text from jobq.enqueue('k')").Scan(&w.xid)
	case 'c':
		err = w.insert.Commit(w.ctx)
	case 'A':
		var news bool
		news, err = w.queries.WaitAnnounce(w.ctx, "default", 3600)
		require.True(w, news)
	case 'O':
		w.open, err = w.queries.LineChangers(w.ctx)
	case 'C':
		w.claimed += len(w.claim("a", 10))
	}
	require.NoError(w, err)
}

// judge does what the worker does afterwards: it claims once more, but only
// if something told it to.
func (w *waiter) judge() {
	w.Helper()
	still, err := w.queries.StillOpen(w.ctx, w.open)
	require.NoError(w, err)
	require.NotContains(w, still, w.xid, "it has ended")
	w.hint = slices.Contains(w.open, w.xid) // others are of other tests
	w.hint = w.hint || w.isNotified()
	if w.claimed == 0 && w.hint {
		w.claimed += len(w.claim("a", 10))
	}
	require.Equal(w, 1, w.claimed, "the job is there and the worker sleeps")
}

// isNotified says whether a notification of new jobs was sent, which is found
// before a mark behind it.
func (w *waiter) isNotified() (notified bool) {
	w.Helper()
	w.exec("notify done")
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	for {
		notification, err := w.listener.WaitForNotification(ctx)
		require.NoError(w, err)
		if notification.Channel == "done" {
			return notified
		}
		notified = true
	}
}

// The test can fail: without the look at open transactions, an insert that
// began before the announcement and commits after the claim is missed.
func TestInterleavingsCoverTheGap(t *testing.T) {
	t.Parallel()
	require.Len(t, interleavings("bic", "aoc"), 20)
	require.True(t, slices.Contains(interleavings("bic", "aoc"), "biAOCc"))
	w := newWaiter(t, pgx.ReadCommitted)
	for _, step := range "biAOCc" {
		w.step(step)
	}
	require.Zero(t, w.claimed)
	require.Contains(t, w.open, w.xid, "this is what saves it")
	require.False(t, w.isNotified(), "nobody notifies")
}

// The janitor announces until when it sleeps, and looks when the next job is due; an insert adds one that is due before. In
// whatever order these steps come, the janitor learns of the job: from the look, from a notification, or because its
// transaction was seen open.
func TestNoInterleavingLosesAScheduledJob(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for _, order := range interleavings("bic", "al") {
			t.Run(fmt.Sprintf("%s %s", level, order), func(t *testing.T) {
				t.Parallel()
				w := newWaiter(t, level)
				_, err := w.listener.Exec(w.ctx, "listen "+db.Channel("jobq", db.TopicDue))
				require.NoError(t, err)
				found := false
				for _, step := range order {
					switch step {
					case 'i':
						require.NoError(t, w.insert.QueryRow(w.ctx, "select pg_current_xact_id()::text from jobq.enqueue('k', run_at => now() + interval '1 minute')").Scan(&w.xid))
					case 'A':
						w.open, err = w.queries.SleepAnnounce(w.ctx, 3_600_000)
						require.NoError(t, err)
					case 'L':
						found = w.text("select (count(*) > 0)::text from jobq.pending where position is null") == "true"
					default:
						w.step(step)
					}
				}
				require.True(t, found || slices.Contains(w.open, w.xid) || w.isNotified(), "the janitor sleeps until after it is due")
			})
		}
	}
}
