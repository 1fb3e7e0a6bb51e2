package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// awaiter waits for jobs, step by step.
type awaiter struct {
	*queue
	listener *pgx.Conn
}

func newAwaiter(t *testing.T) *awaiter {
	t.Helper()
	ctx := context.Background()
	a := &awaiter{queue: setUp(t)}
	var err error
	a.listener, err = pgx.Connect(ctx, a.pool.Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.listener.Close(context.Background()) })
	_, err = a.listener.Exec(ctx, "listen done; listen "+db.Channel("jobq", db.TopicEnded))
	require.NoError(t, err)
	return a
}

// announce says that somebody waits for the jobs, and no longer for the others.
func (a *awaiter) announce(waiter int64, ids, done []int64, lease time.Duration) (known bool) {
	a.Helper()
	known, err := a.queries.Await(context.Background(), db.AwaitParams{Waiter: waiter, Jobs: ids, Done: done, Lease: db.Interval(lease)})
	require.NoError(a, err)
	return known
}

// told are the jobs that notifications have named until now. Of a payload that would be
// near the limit of 8,000 bytes it makes a failure.
func (a *awaiter) told() (ids []int64) {
	a.Helper()
	a.exec("notify done")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		notification, err := a.listener.WaitForNotification(ctx)
		require.NoError(a, err)
		if notification.Channel == "done" {
			slices.Sort(ids)
			return ids
		}
		require.Less(a, len(notification.Payload), 7_000)
		for _, text := range strings.Fields(notification.Payload) {
			id, err := strconv.ParseInt(text, 10, 64)
			require.NoError(a, err)
			ids = append(ids, id)
		}
	}
}

func (a *awaiter) awaited() int { return a.number("select count(*) from jobq.awaited") }

// enqueue adds jobs of kind k, and returns their ids.
func (a *awaiter) enqueue(count int, arguments string) (ids []int64) {
	a.Helper()
	rows, err := a.pool.Query(context.Background(), fmt.Sprintf("select jobq.enqueue('k'%s) from generate_series(1, %d)", arguments, count))
	require.NoError(a, err)
	ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(a, err)
	return ids
}

// Of every way in which a job ends, or goes, whoever waits for it is notified with the
// commit, and of its neighbours that nobody waits for nothing is said. A run that is not
// the end is none.
func TestEndsAreNotified(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a := newAwaiter(t)
	final := db.Ending{Outcome: "failed", Final: true, Error: "e"}
	again := db.Ending{Outcome: "failed", Delay: db.DelayOf(time.Hour), Error: "e"}
	for name, test := range map[string]struct {
		arguments string
		end       func(claimed []db.JobClaimRow)
		isOver    bool
	}{
		"plain success": {"", func(claimed []db.JobClaimRow) {
			var completions []db.Completion
			for _, job := range claimed {
				completions = append(completions, db.Completion{Slot: at(job), Kind: "k"})
			}
			require.Len(t, a.exchange(db.Exchange{Owner: "a", Completions: completions}).Completed, len(claimed))
		}, true},
		"success with a result": {"", func(claimed []db.JobClaimRow) {
			for _, job := range claimed {
				a.exchange(db.Exchange{Owner: "a", Completions: []db.Completion{{Slot: at(job), Kind: "k", Result: json.RawMessage("1")}}})
			}
		}, true},
		"failure for good": {"", func(claimed []db.JobClaimRow) {
			for _, job := range claimed {
				require.Equal(t, "failed", a.end(job, final))
			}
		}, true},
		"failure": {"", func(claimed []db.JobClaimRow) {
			for _, job := range claimed {
				require.Equal(t, "scheduled", a.end(job, again))
			}
		}, false},
		"CompleteTx": {"", func(claimed []db.JobClaimRow) {
			require.NoError(t, pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
				for _, job := range claimed {
					params := db.RunCompleteTxParams{ID: job.ID, Token: job.LeaseToken, Owner: "a", ClaimedAt: job.StartedAt}
					if _, err := a.schema.Queries(tx).RunCompleteTx(ctx, params); err != nil {
						return err
					}
				}
				require.Empty(t, a.told(), "it is not committed")
				return nil
			}))
		}, true},
		"success that its program stores": {"", func(claimed []db.JobClaimRow) {
			for _, job := range claimed {
				a.exec("select jobq.complete($1, $2, '{}')", job.ID, runToken(job))
			}
		}, true},
		"failure that its program stores": {"", func(claimed []db.JobClaimRow) {
			for _, job := range claimed {
				a.exec("select jobq.fail($1, $2, 'e')", job.ID, runToken(job))
			}
		}, false},
		"the last crash":           {", max_attempts => 1", func([]db.JobClaimRow) { a.reap() }, true},
		"a crash":                  {"", func([]db.JobClaimRow) { a.reap() }, false},
		"cancel of one that runs":  {"", func(claimed []db.JobClaimRow) { a.cancelAll(claimed) }, false},
		"cancel of one that waits": {", queue => 'elsewhere'", func([]db.JobClaimRow) { a.exec("select jobq.cancel(id) from jobq.pending where queue = 'elsewhere'") }, true},
		"bulk cancel":              {", queue => 'elsewhere'", func([]db.JobClaimRow) { a.act("cancel", nil, a.waiting()...) }, true},
		"delete of one that waits": {", queue => 'elsewhere'", func([]db.JobClaimRow) { a.act("delete", nil, a.waiting()...) }, true},
		"a delete by SQL function": {", queue => 'elsewhere'", func([]db.JobClaimRow) {
			a.exec("select jobq.delete_job(id) from jobq.pending where queue = 'elsewhere'")
		}, true},
		"cancel at the end of a run": {"", func(claimed []db.JobClaimRow) {
			a.cancelAll(claimed)
			for _, job := range claimed {
				require.Equal(t, "cancelled", a.end(job, again))
			}
		}, true},
		"success after steps": {"", func(claimed []db.JobClaimRow) {
			for _, job := range claimed {
				a.exec("select jobq.step_put($1, $2, 'a', '1'), jobq.step_sleep($1, $2, 'b', '0'), jobq.step_wait($1, $2, 'c', '0')", job.ID, runToken(job))
				a.exchange(db.Exchange{Owner: "a", Completions: []db.Completion{{Slot: at(job), Kind: "k", OnRow: true}}})
			}
		}, true},
		"sleep":             {"", func(claimed []db.JobClaimRow) { a.eachOf(claimed, "jobq.step_sleep($1, $2, 'a', '1 hour')") }, false},
		"wait for an event": {"", func(claimed []db.JobClaimRow) { a.eachOf(claimed, "jobq.step_wait($1, $2, 'e1')") }, false},
		"an event comes": {"", func(claimed []db.JobClaimRow) {
			a.eachOf(claimed, "jobq.step_wait($1, $2, 'e2')")
			a.exec("select jobq.emit('e2')")
		}, false},
		"cancel of one that sleeps": {"", func(claimed []db.JobClaimRow) {
			a.eachOf(claimed, "jobq.step_sleep($1, $2, 'a', '1 hour')")
			a.cancelAll(claimed)
		}, true},
		"sleep of one that was cancelled": {"", func(claimed []db.JobClaimRow) {
			a.cancelAll(claimed)
			a.eachOf(claimed, "jobq.step_sleep($1, $2, 'a', '1 hour')")
		}, true},
	} {
		a.exec("delete from jobq.pending")
		ids := a.enqueue(3, test.arguments)
		claimed := sorted(a.claim("a", 3))
		require.Empty(t, a.told(), name)
		a.announce(1, ids[1:2], nil, time.Hour)
		test.end(claimed)
		if test.isOver {
			require.Equal(t, ids[1:2], a.told(), name)
		} else {
			require.Empty(t, a.told(), name)
		}
		a.announce(1, nil, ids[1:2], time.Hour)
	}
}

// eachOf makes a call for each run, by its job and its token.
func (a *awaiter) eachOf(claimed []db.JobClaimRow, call string) {
	a.Helper()
	for _, job := range claimed {
		a.exec("select "+call, job.ID, runToken(job))
	}
}

func (a *awaiter) cancelAll(claimed []db.JobClaimRow) {
	a.Helper()
	for _, job := range claimed {
		a.exec("select jobq.cancel($1)", job.ID)
	}
}

// waiting are the jobs that wait.
func (a *awaiter) waiting() []int64 {
	a.Helper()
	rows, err := a.pool.Query(context.Background(), "select id from jobq.pending")
	require.NoError(a, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(a, err)
	return ids
}

// Thousands that are waited for and end together are told in payloads that fit.
func TestManyEndsAreNotified(t *testing.T) {
	t.Parallel()
	a := newAwaiter(t)
	a.exec("select setval('jobq.job_id_seq', $1::bigint)", int64(1)<<60)
	ids := a.enqueue(1000, "")
	a.announce(1, ids, nil, time.Hour)
	a.announce(2, ids, nil, time.Hour) // each is told once, whoever waits
	var completions []db.Completion
	for _, job := range sorted(a.claim("a", 1000)) {
		completions = append(completions, db.Completion{Slot: at(job), Kind: "k"})
	}
	a.exchange(db.Exchange{Owner: "a", Completions: completions})
	require.Equal(t, ids, a.told())
}

// What a process has left that died is deleted by the next that waits, in bounded steps;
// one that renews its lease loses nothing, and one that was forgotten is told so.
func TestWaitersAreForgotten(t *testing.T) {
	t.Parallel()
	a := newAwaiter(t)
	const left = 5_000
	a.exec("insert into jobq.waiter values (1, now() - interval '1 s')")
	a.exec("insert into jobq.awaited select i, 1 from generate_series(1, $1::integer) i", left)
	require.False(t, a.announce(2, []int64{7}, nil, time.Hour), "new")
	require.Equal(t, left-2000+1, a.awaited())
	require.True(t, a.announce(2, []int64{8}, []int64{7}, time.Hour))
	require.Equal(t, left-2000+1, a.awaited(), "it cleans up when it renews its lease, and no more often")
	for waiter := int64(3); waiter < 6; waiter++ {
		require.False(t, a.announce(waiter, nil, nil, time.Hour))
	}
	require.Equal(t, 1, a.awaited())
	require.Equal(t, 4, a.number("select count(*) from jobq.waiter"))

	isDone, err := a.queries.AwaitEnd(context.Background(), 2)
	require.NoError(t, err)
	require.True(t, isDone)
	require.Zero(t, a.awaited())
	a.announce(2, make([]int64, 0), nil, time.Hour)
	a.exec("insert into jobq.awaited select i, 2 from generate_series(1, $1::integer) i", left)
	for _, want := range []bool{false, false, true} {
		isDone, err = a.queries.AwaitEnd(context.Background(), 2)
		require.NoError(t, err)
		require.Equal(t, want, isDone)
	}
	require.Zero(t, a.awaited())
	require.False(t, a.announce(2, []int64{8}, nil, time.Hour), "it was forgotten")

	a.exec("update jobq.waiter set expires_at = now() + interval '1 h' where id = 2")
	before := a.number("select extract(epoch from expires_at)::bigint from jobq.waiter where id = 2")
	require.True(t, a.announce(2, nil, nil, time.Hour))
	require.Equal(t, before, a.number("select extract(epoch from expires_at)::bigint from jobq.waiter where id = 2"), "not yet")
	a.exec("update jobq.waiter set expires_at = now() - interval '1 min' where id = 2")
	require.True(t, a.announce(2, nil, nil, time.Hour))
	require.Equal(t, 1, a.number("select count(*) from jobq.waiter where id = 2 and expires_at > now() and expires_at <= now() + interval '1 min'"),
		"a lease is a minute at most")
	require.Less(t, a.number("select last_value from jobq.awaited_seq"), a.number("select extract(epoch from now())::bigint")+120)
}

// Two processes renew their leases late at the same time, and each deletes what the other
// has left. None waits for the other. Method: the first one is held up by a row of its own.
func TestLateWaitersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a := newAwaiter(t)
	a.announce(1, []int64{5, 7}, nil, time.Hour)
	a.announce(2, []int64{6, 8}, nil, time.Hour)
	a.exec("update jobq.waiter set expires_at = now() - interval '1 s'")
	tx, err := a.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(ctx, "select from jobq.awaited where job_id = 5 for update")
	require.NoError(t, err)
	renew := func(waiter int64, done []int64) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := a.queries.Await(ctx, db.AwaitParams{Waiter: waiter, Jobs: []int64{9}, Done: done, Lease: db.Interval(time.Minute)})
			ended <- err
		}()
		return ended
	}
	first := renew(1, []int64{5, 7})
	a.awaitLock()
	second := renew(2, []int64{6, 8})
	require.NoError(t, <-second, "it waits for nobody")
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, <-first)
	require.Equal(t, 2, a.awaited())
	require.Equal(t, 2, a.number("select count(*) from jobq.waiter"))
}

// What await is given is checked: a lease of a year would make every end look for waiters
// that have died long ago.
func TestAwaitArguments(t *testing.T) {
	t.Parallel()
	a := newAwaiter(t)
	for arguments, want := range map[string]string{
		"null, '{}', '{}', '30 s'":    "waiter must not be null",
		"1, '{}', '{}', null":         "lease must be more than 0 s, not null",
		"1, '{}', '{}', '0'":          "lease must be more than 0 s, not 00:00:00",
		"1, '{}', '{}', '-1 s'":       "lease must be more than 0 s, not -00:00:01",
		"1, '{7,null}', '{}', '30 s'": "jobs must not be null",
		"1, array(select generate_series(1::bigint, 1001)), '{}', '30 s'": "jobs and done must be at most 1000 each in one call, not 1001",
		"1, '{}', array(select generate_series(1::bigint, 1001)), '30 s'": "jobs and done must be at most 1000 each in one call, not 1001",
	} {
		_, err := a.pool.Exec(context.Background(), "select jobq.await("+arguments+")")
		failure := new(pgconn.PgError)
		require.ErrorAs(t, err, &failure, arguments)
		require.Equal(t, "JQ001", failure.Code, arguments)
		require.Equal(t, want, failure.Message, arguments)
	}
	a.exec("select jobq.await(1, null, null, '1 year')")
}

// While nobody waits, no end looks at who does: the tables may be locked.
func TestEndsOfNobodysJobsLookAtNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a := newAwaiter(t)
	ids := a.enqueue(4, "")
	claimed := sorted(a.claim("a", 3))
	require.NoError(t, pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "lock table jobq.awaited, jobq.waiter")
		require.NoError(t, err)
		a.exchange(db.Exchange{Owner: "a", Completions: []db.Completion{
			{Slot: at(claimed[0]), Kind: "k"}, {Slot: at(claimed[1]), Kind: "k", Result: json.RawMessage("1")},
		}})
		a.end(claimed[2], db.Ending{Outcome: "failed", Final: true})
		a.exec("select jobq.cancel($1)", ids[3])
		a.exec("select jobq.delete_job($1)", ids[3])
		return nil
	}))
}

// EndRead has a row for each job that has ended or is not there, and none for the others.
func TestEndRead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a := newAwaiter(t)
	ids := a.enqueue(6, "")
	claimed := sorted(a.claim("a", 4))
	a.exchange(db.Exchange{Owner: "a", Completions: []db.Completion{
		{Slot: at(claimed[0]), Kind: "k"}, {Slot: at(claimed[1]), Kind: "k", Result: json.RawMessage(`{"x": 1}`)},
	}})
	require.Equal(t, "failed", a.end(claimed[2], db.Ending{Outcome: "failed", Final: true, Error: "why"}))
	a.exec("select jobq.delete_job($1)", ids[5])
	asked := append(slices.Clone(ids), 4711)
	rows, err := a.queries.EndRead(ctx, asked, 100)
	require.NoError(t, err)
	var said []string
	for _, row := range rows {
		require.Equal(t, slices.Contains(ids[:3], row.ID), row.EndedAt.Valid)
		said = append(said, fmt.Sprintf("%d %s %s %s", row.ID, row.State, row.Result, row.Error))
	}
	require.Equal(t, []string{
		fmt.Sprintf("%d completed  ", ids[0]), fmt.Sprintf(`%d completed {"x": 1} `, ids[1]), fmt.Sprintf("%d failed  why", ids[2]),
		fmt.Sprintf("%d gone  ", ids[5]), "4711 unknown  ",
	}, said)
	rows, err = a.queries.EndRead(ctx, asked, 2)
	require.NoError(t, err)
	require.Len(t, rows, 2)

	var state, result, reason string
	read := `select state::text, coalesce(result::text, ''), coalesce(error, '') from jobq.result($1)`
	for id, want := range map[int64][3]string{
		ids[0]: {"completed", "", ""}, ids[1]: {"completed", `{"x": 1}`, ""}, ids[2]: {"failed", "", "why"}, ids[3]: {"running", "", ""}, ids[4]: {"available", "", ""},
	} {
		require.NoError(t, a.pool.QueryRow(ctx, read, id).Scan(&state, &result, &reason))
		require.Equal(t, want, [3]string{state, result, reason})
	}
	require.ErrorIs(t, a.pool.QueryRow(ctx, read, 4711).Scan(&state, &result, &reason), pgx.ErrNoRows)
}
