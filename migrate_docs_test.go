package jobq_test

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/jobtest"
)

// The statements of docs/migrate.md move the jobs that wait in another queue, as they
// are, and no others. Method: tables with those columns of River, graphile-worker and
// pg-boss that the statements use, in a transaction that is rolled back.
func TestMigrateGuide(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/migrate.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 3)
	const moved = `select kind || ' ' || args::text || ' ' || queue || ' ' || priority || ' ' || max_attempts || ' ' || (run_at > now()) || ' '
		|| coalesce(unique_key, '-') || ' ' || coalesce(tags::text, '-') || coalesce(' of ' || nullif(partition_key, ''), '') from jobq.pending order by kind`
	for i, queue := range []struct{ tables, left, want string }{
		{
			`create type river_job_state as enum ('available', 'cancelled', 'completed', 'discarded', 'retryable', 'running', 'scheduled', 'pending');
			create table river_job (state river_job_state, attempt smallint, max_attempts smallint, scheduled_at timestamptz, priority smallint,
				args jsonb, kind text, metadata jsonb not null default '{}', queue text, tags varchar(255)[] not null default '{}');
			insert into river_job values ('scheduled', 0, 25, now() + interval '1 hour', 1, '{"n": 1}', 'a', '{"m": 1}', 'slow', '{x}');
			insert into river_job values ('retryable', 3, 5, now() + interval '1 minute', 4, '{}', 'b'), ('running', 1, 25, now(), 1, '{}', 'c'), ('completed', 1, 25, now(), 1, '{}', 'd');
			update river_job set queue = coalesce(queue, 'default')`,
			"select count(*) from river_job", `[a {"n": 1} slow 1 25 true - {x} b {} default 4 2 true - -]`,
		},
		{
			`create schema graphile_worker; create table graphile_worker._private_tasks (id integer, identifier text);
			create table graphile_worker._private_jobs (task_id integer, payload json, priority smallint, run_at timestamptz, attempts smallint,
				max_attempts smallint, key text, locked_at timestamptz, job_queue_id integer);
			create table graphile_worker._private_job_queues (id integer, queue_name text);
			insert into graphile_worker._private_tasks values (1, 'a'), (2, 'b');
			insert into graphile_worker._private_job_queues values (7, 'serial');
			insert into graphile_worker._private_jobs values (1, '{"n": 1}', -2, now() + interval '1 hour', 0, 25, 'k', null, null),
				(2, '[]', 0, now(), 24, 25, null, null, 7), (2, '{}', 0, now(), 1, 25, null, now(), 7), (1, '{}', 0, now(), 25, 25, null, null, null)`,
			"select count(*) from graphile_worker._private_jobs", `[a {"n": 1} default -2 25 true k - b [] default 0 1 false - - of serial]`,
		},
		{
			`create schema pgboss; create type pgboss.job_state as enum ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
			create table pgboss.job (name text, priority integer, data jsonb, state pgboss.job_state, retry_limit integer, retry_count integer,
				singleton_key text, start_after timestamptz);
			insert into pgboss.job values ('a', 5, '{"n": 1}', 'created', 2, 0, 'k', now() + interval '1 hour'), ('b', 0, null, 'retry', 2, 2, null, now()),
				('c', 0, '{}', 'active', 2, 0, null, now()), ('d', 0, '{}', 'failed', 2, 2, null, now())`,
			"select count(*) from pgboss.job", `[a {"n": 1} default -5 3 true k - b {} default 0 1 false - -]`,
		},
	} {
		func() {
			tx, err := jobtest.Client(t).Pool().Begin(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
			_, err = tx.Exec(t.Context(), queue.tables)
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), blocks[i][1])
			require.NoError(t, err, blocks[i][1])
			rows, err := tx.Query(t.Context(), moved)
			require.NoError(t, err)
			jobs, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.Equal(t, queue.want, fmt.Sprint(jobs))
			var left int
			require.NoError(t, tx.QueryRow(t.Context(), queue.left).Scan(&left))
			require.Equal(t, 2, left, "what runs or has ended stays")
		}()
	}
}
