package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// failed adds a job that has failed so many minutes ago.
func failed(t *testing.T, pool *pgxpool.Pool, queue, kind, reason string, minutes int) int64 {
	t.Helper()
	return query[int64](t, pool, `
		insert into jobq.run (id, lease_id, slot, run_at, created_at, state, finished_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args, last_error)
		  select nextval('jobq.job_id_seq'), jobq.lease_id_next(), 0, now(), now(), 'failed', now() - $4::integer * interval '1 minute', 0, 1, 1, 0, false, $1, $2, '{}', $3
		  returning id`, queue, kind, reason, minutes)
}

// Failures come in groups, which are chosen by queue, kind and age, and found by
// their ids, that stay the same. A sample of a group is requeued, then the others,
// and other groups are left alone.
func TestErrors(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	for i := range 12 {
		failed(t, pool, "email", "Send", fmt.Sprintf("user %d: no mailbox\nstack", i), 20-i)
	}
	failed(t, pool, "email", "Bounce", "user 7: no mailbox", 3)
	failed(t, pool, "video", "Encode", "exit code 1", 2)
	old := failed(t, pool, "video", "Encode", "exit code 65", 60*24*3)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(append([]string{"errors"}, args...), "--database-url", url)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	groups := func(args ...string) monitor.Failures {
		t.Helper()
		var failures monitor.Failures
		require.NoError(t, json.Unmarshal([]byte(command(exitOK, append(args, "--json")...)), &failures))
		return failures
	}
	all := groups()
	require.Len(t, all.Groups, 3)
	group := all.Groups[0]
	require.Equal(t, []any{"email", "Send", "user #: no mailbox", int64(12)}, []any{group.Queue, group.Kind, group.Error, group.Failed})
	require.Regexp(t, "^[0-9a-f]{8}$", group.ID)
	require.Equal(t, group.ID, groups("--since", "15m", "--queue", "email", "--kind", "Send").Groups[0].ID, "of fewer jobs")
	require.Len(t, groups("--since", "7d").Groups, 4)
	require.Len(t, groups("--queue", "video").Groups, 1)
	require.Len(t, groups("--kind", "Bounce").Groups, 1)
	one := groups("--limit", "1")
	require.Len(t, one.Groups, 1)
	require.EqualValues(t, 2, one.Left)
	require.Contains(t, command(exitOK, "--limit", "1"), "2 groups more")
	require.Contains(t, command(exitOK, "--queue", "none"), "no such job has failed in the last 1d, and none is to be tried again")
	require.Contains(t, command(exitUsage, "--limit", "0"), "--limit must be 1 to 1000")

	require.Contains(t, command(exitUsage, "--limit", "5000"), "--limit must be 1 to 1000, not 5000")
	require.Contains(t, command(exitUsage, "--since", "0s"), "--since must be positive")

	shown := command(exitOK, "show", group.ID)
	require.Equal(t, shown, command(exitOK, "show", strings.ToUpper(group.ID)))
	for _, id := range []string{"", " ", group.ID[:7], group.ID + "0", "video"} {
		require.Contains(t, command(exitUsage, "show", id), "8 hexadecimal digits", id)
		require.Contains(t, command(exitUsage, "requeue", id, "--yes"), "8 hexadecimal digits", id)
	}
	for _, name := range []string{"show", "requeue"} {
		require.Contains(t, command(exitUsage, name, group.ID, "--since", "0s"), "--since must be positive", name)
	}
	only := pgtest.URL(t) // of which "" would be the only group
	failed(t, pgtest.Connect(t, only), "email", "Send", "no mailbox", 1)
	_, stderr, code := invoke(t, "", "errors", "requeue", "", "--yes", "--database-url", only)
	require.Equal(t, exitUsage, code, stderr)
	require.Contains(t, stderr, "8 hexadecimal digits")
	require.Contains(t, shown, "user #: no mailbox")
	require.Contains(t, shown, `jobq list 'state:failed queue:email kind:Send err:="user #: no mailbox" age:<1d'`)
	require.Contains(t, command(exitNotFound, "show", "00000000"), "--since looks further back")
	require.Contains(t, command(exitNotFound, "show", group.ID, "--since", "1s"), "no group")

	require.Contains(t, command(exitUsage, "requeue", group.ID), "give --yes")
	require.Contains(t, command(exitUsage, "requeue", group.ID, "--sample", "0", "--yes"), "--sample must be at least 1")
	require.Equal(t, "would requeue 5 jobs\n", command(exitOK, "requeue", group.ID, "--sample", "5", "--dry-run"))
	require.Equal(t, 15, count(t, pool, "jobq.run"), "nothing was done yet")
	said := command(exitOK, "requeue", group.ID, "--sample", "5", "--yes")
	require.Contains(t, said, "requeue: 5 jobs, 0 refused; take it back with: jobq undo 1\n")
	require.Contains(t, said, "look at them:       jobq list 'id:8,9,10,11,12'")
	require.Contains(t, said, "jobq errors requeue "+group.ID+" --rate 10/s")
	require.Equal(t, []int64{8, 9, 10, 11, 12}, query[[]int64](t, pool, "select array_agg(id order by id) from jobq.pending"), "the newest")
	var progress operator.BulkProgress
	require.NoError(t, json.Unmarshal([]byte(command(exitOK, "requeue", group.ID, "--rate", "1000/s", "--yes", "--json")), &progress))
	require.Equal(t, 7, progress.Done)
	require.Contains(t, command(exitNotFound, "requeue", group.ID, "--yes"), "no job of the group "+group.ID+" has failed for good; its jobs (12) are to be tried again")
	require.Equal(t, 12, count(t, pool, "jobq.pending"))
	require.Equal(t, 3, count(t, pool, "jobq.run"), "other groups are as they were")

	late := groups("--since", "7d", "--queue", "video")
	for _, group := range late.Groups {
		if group.Example == old {
			said := command(exitOK, "requeue", group.ID, "--since", "7d", "--sample", "3", "--yes")
			require.Contains(t, said, "requeue: 1 job,")
			require.Contains(t, said, "jobq errors requeue "+group.ID+" --since 7d --rate 10/s\n")
		}
	}
	require.Equal(t, 13, count(t, pool, "jobq.pending"))
	_, stderr, code = invoke(t, "", "undo", "1", "--database-url", url)
	require.Zero(t, code, stderr)
	back := groups().Groups[0]
	require.Equal(t, [2]int64{5, 7}, [2]int64{back.Failed, back.Retrying}, "an undo brings the group back")
}

// Jobs that have failed and are to be tried again have groups as well, which say how to find them, and
// that there is nothing to requeue.
func TestErrorsOfRetries(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	query[int64](t, pool, `
		with again as (
		  insert into jobq.pending (kind, queue, position, run_at, last_error, attempts) select 'Send', 'email', null, now() + interval '1 h', 'user ' || i || ': no mailbox', 1 from generate_series(1, 3) i
		  returning id)
		select count(*) from again`)
	failed(t, pool, "email", "Bounce", "timeout", 3)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(append([]string{"errors"}, args...), "--database-url", url)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	listed := command(exitOK)
	require.Regexp(t, `^GROUP +FAILED +RETRYING +QUEUE .*\n\w{8} +0 +3 +email +Send +- +- +3 +user #: no mailbox\n\w{8} +1 +0 +email +Bounce +3m ago +3m ago +4 +timeout\n$`, listed)
	id := strings.Fields(strings.Split(listed, "\n")[1])[0]
	shown := command(exitOK, "show", id)
	require.Regexp(t, `\nfailed +0\nretrying +3\nnewest jobs +3, 2, 1\n`, shown)
	require.Contains(t, shown, `jobq list 'state:scheduled,available attempts:>0 queue:email kind:Send err:="user #: no mailbox"'`)
	require.NotContains(t, shown, "all that failed")
	require.Contains(t, command(exitOK, "show", id, "--json"), `"retrying": 3`)
	require.NotContains(t, command(exitOK, "show", id, "--json"), `"first"`)
	require.Contains(t, command(exitNotFound, "requeue", id, "--yes"), `jobq requeue --filter 'state:scheduled,available attempts:>0 queue:email`)

	query[int64](t, pool, `
		with newer as (insert into jobq.pending (kind, last_error, attempts) select 'Other', 'x', 1 from generate_series(1, $1) returning id) select count(*) from newer`, monitor.FailuresMax)
	listed = command(exitOK)
	require.Contains(t, listed, "of the jobs that are to be tried again, only the newest 10,000 were looked at")
	require.Regexp(t, `\w{8} +1 +0\+ +email +Bounce`, listed)
	require.Contains(t, command(exitNotFound, "show", id), "nor among the newest that are to be tried again")
}

// Where not all failures were looked at, it does not say that there is none.
func TestErrorsBeyondThoseLookedAt(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	failed(t, pool, "email", "Send", "timeout", 1)
	query[int64](t, pool, `
		with cancelled as (
		  insert into jobq.run (id, lease_id, slot, run_at, created_at, state, finished_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind)
		    select nextval('jobq.job_id_seq'), jobq.lease_id_next(), 0, now(), now(), 'cancelled', now(), 0, 1, 1, 0, false, 'video', 'Encode' from generate_series(1, $1)
		    returning id)
		select count(*) from cancelled`, monitor.FailuresMax)
	_, stderr, code := invoke(t, "", "errors", "--queue", "email", "--database-url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "no such job was found\nonly the last 10,000 jobs that did not succeed were looked at: there may be more\n", stderr)
	_, stderr, code = invoke(t, "", "errors", "show", "00000000", "--database-url", url)
	require.Equal(t, exitNotFound, code, stderr)
	require.Contains(t, stderr, "among the last 10,000 jobs that did not succeed")
}

func count(t *testing.T, pool *pgxpool.Pool, table string) int {
	t.Helper()
	return query[int](t, pool, "select count(*)::integer from "+table)
}
