package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// moving makes a job move between two statements of a function, as others make it
// do: before each of the places in its text, the job goes to run, or back to
// pending. It does so the given number of times, and then stays where it is.
func (q *queue) moving(function string, times int, places map[string]string) {
	q.Helper()
	q.exec(`create sequence public.moves;
		create function public.to_pending(job bigint) returns void language sql as $$
		  with r as (delete from jobq.run r where r.id = job returning r.*)
		  insert into jobq.pending (id, kind) select r.id, r.kind from r $$;
		create function public.to_run(job bigint) returns void language sql as $$
		  with p as (delete from jobq.pending p where p.id = job returning p.*)
		  insert into jobq.run (id, lease_id, slot, position, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
		    select p.id, jobq.lease_id_next(), 1, p.position, p.run_at, p.created_at, p.priority, p.attempts, p.max_attempts, p.crashes, p.args_apart, p.queue, p.kind, p.args from p $$`)
	var text string
	require.NoError(q, q.pool.QueryRow(context.Background(), "select pg_get_functiondef($1::regproc)", function).Scan(&text))
	for place, goesTo := range places {
		place = q.schema.SQL(place)
		require.Equal(q, 1, strings.Count(text, place), place)
		move := fmt.Sprintf("if nextval('public.moves') <= %d then perform public.to_%s(job_id); end if;\n", times, goesTo)
		text = strings.Replace(text, place, move+place, 1)
	}
	q.exec(text)
}

func (q *queue) text(sql string, args ...any) (text string) {
	q.Helper()
	require.NoError(q, q.pool.QueryRow(context.Background(), sql, args...).Scan(&text))
	return text
}

// Where functions look for a job, and where it is then instead.
var (
	cancelLooks  = map[string]string{"with taken as (": "run", "update jobq.run r": "pending"}
	requeueLooks = map[string]string{
		"update jobq.pending p": "run", "if exists (select from jobq.pending p where p.id = requeue.job_id)": "run", "perform jobq.running_refuse(": "pending",
	}
	deleteLooks = map[string]string{"delete from jobq.pending p where": "run", "delete from jobq.run r": "pending"}
	lockLooks   = map[string]string{"select to_jsonb(p)": "run", "select r.* into ran": "pending"}
)

// A job that moves each time that somebody looks for it is found all the same:
// that there is no such job is said of one moment.
func TestMovingJobIsFound(t *testing.T) {
	t.Parallel()
	const times = 30
	for name, test := range map[string]struct {
		function string
		looks    map[string]string
		call     string
		want     string
	}{
		"cancel":  {"jobq.cancel", cancelLooks, "select jobq.cancel(1)::text", "cancelled"},
		"requeue": {"jobq.requeue", requeueLooks, "select jobq.requeue(1)::text", "available"},
		"delete":  {"jobq.delete_job", deleteLooks, "select jobq.delete_job(1)::text", "true"},
		"an action": {
			"jobq.job_lock", lockLooks, "select concat_ws(' ', a.code, a.problem, a.state_after) from jobq.act('ann', 'edit', '{1}', null, null, null, null, '{\"priority\": 3}') a", "available",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.exec("select jobq.enqueue('k')")
			q.moving(test.function, times, test.looks)
			require.Equal(t, test.want, q.text(test.call))
			require.Greater(t, q.number("select last_value from public.moves"), times)
			require.Equal(t, test.want != "true", q.number("select count(*) from jobq.job") == 1)
		})
	}
}

// One that never stays is an error after which callers try again; and where there
// is no job, nobody looks on.
func TestJobThatNeverStays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		function string
		looks    map[string]string
		call     string
	}{
		"cancel":    {"jobq.cancel", cancelLooks, "select jobq.cancel($1)::text"},
		"requeue":   {"jobq.requeue", requeueLooks, "select jobq.requeue($1)::text"},
		"delete":    {"jobq.delete_job", deleteLooks, "select jobq.delete_job($1)::text"},
		"an action": {"jobq.job_lock", lockLooks, "select jobq.job_lock($1, false)::text"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.exec("select jobq.enqueue('k')")
			q.moving(test.function, 1_000_000, test.looks)
			_, err := q.pool.Exec(context.Background(), test.call, 1)
			require.ErrorContains(t, err, "job 1 moves too fast: try again")
			require.True(t, db.IsTransient(err))
			require.Equal(t, 1, q.number("select count(*) from jobq.job"))
			moves := q.number("select last_value from public.moves")
			var answer *string
			require.NoError(t, q.pool.QueryRow(context.Background(), test.call, 2).Scan(&answer))
			require.True(t, answer == nil || *answer == "false")
			require.LessOrEqual(t, q.number("select last_value from public.moves"), moves+len(test.looks), "one round")
		})
	}
}
