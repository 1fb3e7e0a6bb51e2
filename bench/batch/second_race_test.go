package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// paused is a statement that has its snapshot, and waits for the test before it
// locks any row: what the test commits meanwhile is what the snapshot does not show.
func paused(t *testing.T, sql, before string) string {
	t.Helper()
	require.Contains(t, sql, before)
	return strings.Replace(sql, before, "where (select pg_advisory_xact_lock(42)) is not null and ("+strings.TrimPrefix(before, "where "), 1)
}

// between runs a statement of the other connection, and something after its
// snapshot and before its locks; and returns how many rows the statement had.
func (h *hands) between(sql string, args []any, meanwhile func()) int64 {
	h.t.Helper()
	h.exec("select pg_advisory_lock(42)")
	rows := make(chan int64, 1)
	go func() {
		tag, err := h.other.Exec(h.ctx, h.schema.SQL(sql), args...)
		if err != nil {
			rows <- -1
			return
		}
		rows <- tag.RowsAffected()
	}()
	require.Eventually(h.t, func() bool {
		var waits bool
		err := h.conn.QueryRow(h.ctx, "select exists (select from pg_locks l where not l.granted and l.pid = $1)", h.other.PgConn().PID()).Scan(&waits)
		return err == nil && waits
	}, 2*time.Minute, 5*time.Millisecond)
	meanwhile()
	h.exec("select pg_advisory_unlock(42)")
	return <-rows
}

// Goal: a lease that changes between a reaper's snapshot and its lock is left
// for the next pass as a whole. Were its runs taken and the lease not marked,
// what its owner sends afterwards would be accepted.
func TestReapMeetsAnEnd(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 3)
	got, l := h.claim()
	h.expire()
	sql := strings.Replace(paused(t, leaseReap, "where l.lost_at is not null"), "any($2::text[]) end\n", "any($2::text[]) end)\n", 1)
	taken := h.between(sql, []any{10, nil}, func() {
		l.succeed(1)
		require.True(t, h.end(l))
	})
	require.Zero(t, taken)
	l.succeed(2)
	require.True(t, h.end(l), "it is still the owner's")
	runs, open := h.reap()
	require.EqualValues(t, []int64{1, 0}, []int64{runs, open})
	require.Equal(t, "completed", h.state(h.id(got, 1)))
	require.EqualValues(t, 2, ask[int64](h, "select sum(completed) from jobq.stat_delta"))
}

// Goal: a run that somebody asks to cancel between a reaper's snapshot and its
// lock stays open, and so does its lease.
func TestReapMeetsACancel(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 2)
	got, _ := h.claim()
	h.expire()
	sql := strings.Replace(paused(t, leaseReap, "where l.lost_at is not null"), "any($2::text[]) end\n", "any($2::text[]) end)\n", 1)
	taken := h.between(sql, []any{10, nil}, func() { h.exec(runCancel, h.id(got, 1)) })
	require.EqualValues(t, 1, taken)
	require.EqualValues(t, 1, ask[int64](h, "select count(*) from jobq.lease where lost_at is not null"))
	require.EqualValues(t, 1, ask[int64](h, "select count(*) from jobq.attempt"), "of the one that was taken")
	runs, open := h.reap()
	require.EqualValues(t, []int64{1, 0}, []int64{runs, open})
	require.Equal(t, "cancelled", h.state(h.id(got, 1)))
}

// Goal: an end of a run that somebody asks to cancel between the snapshot and
// the lock is not stored, and does not say that it was.
func TestEndMeetsACancel(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 1)
	got, _ := h.claim()
	sql := strings.Replace(paused(t, runEnd, "where x.id = f.id"), "is not null\n        for update", "is not null)\n        for update", 1)
	stored := h.between(sql, h.ownArgs(got, "failed", time.Hour, 1), func() { h.exec(runCancel, h.id(got, 1)) })
	require.Zero(t, stored)
	require.Zero(t, ask[int64](h, "select count(*) from jobq.attempt"))
	require.Zero(t, ask[int64](h, "select count(*) from jobq.stat_delta"))
	require.Equal(t, 1, h.endOwn(got, "failed", 1))
	require.Equal(t, "cancelled", h.state(h.id(got, 1)))
}
