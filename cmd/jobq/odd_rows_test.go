package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/metrics"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// oddValues are the odd values of each type, as SQL: at its limits, and beyond what Go or JSON can hold.
const oddValues = `create function odd_values(type regtype) returns text[] language sql as $$
	select case type::text
		when 'jsonb' then array['(select jsonb_agg(''1e131071''::numeric) from generate_series(1, 600))', -- 6 kB, and 78 MB as text
			'(repeat(''['', 6000) || repeat('']'', 6000))::jsonb', '''null''', '''"\\u001b[31m\\u202e"''', '''1e400''', '''[]''', '''{"$jobq": "enc", "key": "nobody", "v": "AAAA"}''', '''{"$jobq": "enc", "key": 5}''']
		when 'text' then array['''''', 'repeat(''x'', 100000)', 'E''\x01\x1b[31m\u202e\n''', '(select string_agg(md5(i::text), '''') from generate_series(1, 60) i)']
		when 'timestamp with time zone' then array['''infinity''', '''-infinity''', '''0001-01-01 BC''', '''4713-01-01 BC''', '''294276-12-31''', '''9999-12-31 23:59:59-12''']
		when 'interval' then array['''-178000000 years''', '''178000000 years''', '''-1 microsecond''', '''0''', '''1 month''']
		when 'smallint' then array['-32768', '32767', '-1', '0']
		when 'integer' then array['-2147483648', '2147483647', '-1', '0']
		when 'bigint' then array['-9223372036854775808', '9223372036854775807', '-1', '0']
		when 'real' then array['''NaN''', '''infinity''', '-1', '''3e38''']
		when 'double precision' then array['''NaN''', '''infinity''', '-1']
		when 'boolean' then array['true', 'false']
		when 'text[]' then array['array[null, ''a'']', 'array[[''a'', ''b''], [''c'', ''d'']]', '''[-5:-4]={a,b}''::text[]', 'array_fill(''''::text, array[5000])']
		when 'bigint[]' then array['array[null, 1]', '''{}''', 'array[[1, 2], [3, 4]]', '''[-5:-4]={1,2}''::bigint[]', 'array_fill(-1::bigint, array[5000])']
		when 'smallint[]' then array['array[null, 1]', '''{}''', 'array[[1, 2], [3, 4]]', '''[-5:-4]={1,2}''::smallint[]', 'array_fill(32767, array[5000])']
		else (select array_agg(quote_literal(e.enumlabel)) from pg_enum e where e.enumtypid = type) end
$$`

// plantOdd adds a row for each odd value of each column of a table: a copy of the row that base is, with that
// value. A value that the table cannot hold, such as a null in a column that refuses it, is left out.
const plantOdd = `create function plant_odd(base text, of_table regclass, made_by text, id_column text) returns integer language plpgsql as $$
declare
	c record;
	odd text;
	new_id bigint;
	place tid;
	planted integer := 0;
begin
	for c in select a.attname, coalesce(nullif(t.typbasetype, 0), t.oid)::regtype as type, a.attnotnull from pg_attribute a join pg_type t on t.oid = a.atttypid where a.attrelid = of_table and a.attnum > 0 and not a.attisdropped and a.attidentity = '' loop
		foreach odd in array coalesce(odd_values(c.type), '{}') || 'null'::text loop
			if c.attname = id_column then continue; end if;
			begin
				execute made_by into new_id, place;
				if id_column <> '' then
					execute format('update %s set %I = %s where %I = $1', of_table, c.attname, odd, id_column) using new_id;
				else
					execute format('update %s set %I = %s where ctid = $1', of_table, c.attname, odd) using place;
				end if;
				insert into odd values (new_id, base, c.attname, odd);
				planted := planted + 1;
			exception when others then
				null;
			end;
		end loop;
	end loop;
	return planted;
end $$`

// oddRows plants in a database every odd row that its tables can hold, past their CHECKs and triggers, as
// their owner can.
func oddRows(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ctx := context.Background()
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for _, sql := range []string{
		"create table odd (id bigint, base text, name text, value text)", oddValues, plantOdd,
		`do $$ declare c record; begin
			for c in select case when contypid <> 0 then 'domain ' || contypid::regtype else 'table ' || conrelid::regclass end as name, conname
					from pg_constraint where contype = 'c' and connamespace = 'jobq'::regnamespace and coninhcount = 0 loop
				execute format('alter %s drop constraint %I', c.name, c.conname);
			end loop;
		end $$`,
		"set session_replication_role = replica",
		`create function lease(own bigint) returns bigint language plpgsql as $$
			declare new_id bigint := jobq.lease_id_next(); begin
				insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids) values (new_id, now() - interval '1 minute', now() - interval '1 s', 'dead', 'default', array[own]);
				return new_id; end $$`,
		`select plant_odd('available', 'jobq.pending', $$insert into jobq.pending (kind) values ('task') returning id$$, 'id')`,
		`select plant_odd('scheduled', 'jobq.pending', $$insert into jobq.pending (kind, position, run_at) values ('task', null, now() - interval '1 s') returning id$$, 'id')`,
		`select plant_odd('running', 'jobq.run', $$with n as (select nextval('jobq.job_id_seq') as id) insert into jobq.run (id, lease_id, slot, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
			select n.id, lease(n.id), 1, now(), 0, 0, 25, 0, false, 'default', 'task', '{}' from n returning id$$, 'id')`,
		`select plant_odd('failed', 'jobq.run', $$insert into jobq.run (id, lease_id, slot, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args, state, finished_at)
			select nextval('jobq.job_id_seq'), jobq.lease_id_next(), 1, now(), 0, 0, 25, 0, false, 'default', 'task', '{}', 'failed', now() returning id$$, 'id')`,
		`select jobq.partition_add(parent, (now() at time zone 'UTC')::date - 5) from unnest(array['run', 'past_lease', 'attempt']) parent`,
		`select plant_odd('old', 'jobq.run', $$insert into jobq.run (id, lease_id, slot, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args, state, finished_at)
			select nextval('jobq.job_id_seq'), jobq.lease_day((now() at time zone 'UTC')::date - 5) + nextval('jobq.lease_number_seq'), 1, now() - interval '5 days', 0, 0, 25, 0, false, 'default', 'task', '{}',
				'failed', now() - interval '5 days' returning id$$, 'id')`,
		// Each of these rows has a number in the place of a job's id, and no id of its own.
		`select plant_odd(t.name::text, t.name, 'insert into ' || t.name || t.made || ' returning nextval(''jobq.job_id_seq''), ctid', '')
			from (values
				('jobq.attempt_default'::regclass, $$ (job_id, finished_at, started_at, lease_token, outcome, number, worker_id) values (1, now() + interval '9 years', now(), 1, 'failed', 1, 'w')$$),
				('jobq.worker', $$ (id, pid, hostname, version, queues, kinds) values (gen_random_uuid(), 1, 'h', 'v', '[]', '{}')$$),
				('jobq.event', $$ (type, source) values ('error', 'w')$$),
				('jobq.audit', $$ (actor, action) values ('ann', 'requeue')$$),
				('jobq.kind', $$ (name) values (gen_random_uuid())$$),
				('jobq.queue', $$ (name) values (gen_random_uuid())$$),
				('jobq.schedule', $$ (name, kind, every) values (gen_random_uuid(), 'task', '1 h')$$),
				('jobq.stat', $$ (minute, run_seconds, wait_seconds, completed, failed, retried, lost, cancelled, queue, kind) values (date_trunc('minute', now()), 1, 1, 1, 1, 1, 1, 1, gen_random_uuid(), 'task')$$),
				('jobq.stat_delta', $$ (minute, run_seconds, wait_seconds, completed, failed, retried, lost, cancelled, queue, kind) values (date_trunc('minute', now()), 1, 1, 1, 1, 1, 1, 1, gen_random_uuid(), 'task')$$)
			) t(name, made)`,
		"set session_replication_role = origin",
	} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
}

// No odd row keeps a claim, a reap or a promotion from the other rows. What can be run runs; the others are named by the
// log, or by their own error. Method: odd rows in every column, among healthy ones, and a worker with its janitor.
func TestNoOddRowStopsARun(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	oddRows(t, pool)
	_, err := pool.Exec(t.Context(), `create table healthy as select jobq.enqueue('task', to_jsonb(i)) as id from generate_series(1, 20) i
		union all select jobq.enqueue('task', to_jsonb(i), run_at => now() + interval '1 s') from generate_series(1, 20) i`)
	require.NoError(t, err)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	log := &syncBuffer{}
	w, err := worker.New(client, &worker.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	require.NoError(t, worker.HandleRaw(w, "task", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		if t.Failed() {
			t.Log(log.String())
		}
	})
	eventually(t, pool, 0, "select count(*) from healthy h join jobq.job j using (id) where j.state <> 'completed'")
	// What is left: queues and kinds that nobody serves, times that do not come, rows that say of themselves that they wait
	// or run, more attempts than there may be, a number of lost runs below 1, those that the reap has set aside, and those that are for workers with a key.
	eventually(t, pool, 0, `select count(*) from odd o join jobq.job j using (id)
		where o.base in ('available', 'scheduled', 'running') and j.state not in ('completed', 'failed', 'cancelled')
			and o.name not in ('queue', 'kind', 'state', 'waits', 'lease_id', 'crashes')
			and (o.base, o.name) not in (('scheduled', 'run_at'), ('scheduled', 'attempts'), ('scheduled', 'max_attempts'), ('scheduled', 'lost'), ('running', 'attempts'))
			and not (j.state = 'scheduled' and coalesce(j.last_error, '') like '%cannot be decoded: %there are no keys here%')`)
	require.Empty(t, query[string](t, pool, `select coalesce(string_agg(o.base || ' ' || o.name || ' = ' || left(o.value, 50), '; '), '') from odd o join jobq.job j using (id)
		where j.state = 'failed' and o.base not in ('failed', 'old') and o.name <> 'state' and coalesce(j.last_error, '') = ''`), "each that fails says why")
	for _, lease := range query[[]string](t, pool, "select array_agg(j.lease_token::text) from odd o join jobq.job j using (id) where o.base = 'running' and o.name = 'attempts' and j.state = 'running'") {
		require.Contains(t, log.String(), fmt.Sprintf(`msg="cannot be reaped, set aside" janitor=leader what="lease %s"`, lease))
	}
	for line := range strings.Lines(log.String()) {
		// A machine that stands still for seconds makes a lock wait too long; that is no row's fault.
		if strings.Contains(line, "leadership lost") && !strings.Contains(line, "SQLSTATE 55P03") && !strings.Contains(line, "timeout") {
			t.Error(line)
		}
	}
}

// No odd row keeps a sweep from the other rows of its day. What is left says of itself that it is of another queue, is not over, or has ended in the future.
func TestNoOddRowStopsASweep(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	oddRows(t, pool)
	require.NotZero(t, query[int64](t, pool, "select count(*) from odd where base = 'old'"))
	_, err := pool.Exec(t.Context(), `select jobq.act_queue_set('ann', 'default', '{"retention": "1 day", "failed_retention": "1 day"}')`)
	require.NoError(t, err)
	for range 10_000 {
		if query[int64](t, pool, "select count(*) from jobq.history_sweep(1000, 1000)") == 0 {
			break
		}
	}
	require.Empty(t, query[string](t, pool, `select coalesce(string_agg(o.name || ' = ' || left(o.value, 50), '; '), '') from odd o join jobq.run r using (id)
		where o.base = 'old' and o.name not in ('queue', 'state', 'lease_id') and not (o.name = 'finished_at' and (r.finished_at is null or r.finished_at > now()))`))
	require.Zero(t, query[int64](t, pool, "select count(*) from jobq.history_sweep(1000, 1000)"))
}

// No odd row keeps an export, a list, a look at a job or a scrape from the other rows. A value that cannot be read has
// its reason in its place, and the rest of its job is there.
func TestOddRowsAreShown(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	oddRows(t, pool)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	for _, command := range []string{
		"list", "list --json --limit 1000", "list state:failed --json --limit 1000", "list state:scheduled --sort due", "list state:running --json",
		"list state:failed --sort finished", "errors", "queues", "stats", "workers", "kinds", "janitor events --json", "audit --json",
	} {
		out, stderr, code := invoke(t, "", append(strings.Fields(command), "--database-url", url)...)
		assert.Zero(t, code, "%s: %s", command, stderr)
		assert.NotEmpty(t, out)
	}
	_, stderr, code := invoke(t, "", "doctor", "--database-url", url)
	require.Equal(t, exitCritical, code, stderr)
	scraped := httptest.NewRecorder()
	metrics.Handler(nil, metrics.NewDatabase(monitor.New(client))).ServeHTTP(scraped, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	assert.Contains(t, scraped.Body.String(), "jobq_up 1")

	watched := monitor.New(client)
	for what, ask := range map[string]func(context.Context) error{
		"session": func(ctx context.Context) error { _, err := watched.Session(ctx); return err },
		"queues":  func(ctx context.Context) error { _, err := watched.Queues(ctx); return err },
		"minutes": func(ctx context.Context) error { _, err := watched.Minutes(ctx, time.Hour); return err },
		"failures": func(ctx context.Context) error {
			_, err := watched.Failures(ctx, monitor.FailureQuery{Span: 24 * time.Hour})
			return err
		},
		"silent":    func(ctx context.Context) error { _, err := watched.Silent(ctx); return err },
		"leader":    func(ctx context.Context) error { _, err := watched.Leader(ctx); return err },
		"schedules": func(ctx context.Context) error { _, err := watched.Schedules(ctx, "", 500); return err },
	} {
		assert.NoError(t, ask(t.Context()), "the terminal UI asks for %s", what)
	}

	today := dayExport{day: query[time.Time](t, pool, "select (now() at time zone 'UTC')::date")}
	assert.NoError(t, today.write(t.Context(), client, io.Discard))
	require.EqualValues(t, query[int64](t, pool, "select count(*) from jobq.run where lease_id between jobq.lease_day((now() at time zone 'UTC')::date) and jobq.lease_day((now() at time zone 'UTC')::date + 1) - 1"), today.jobs)
	rows, err := pool.Query(t.Context(), "select id, base, name, value from odd where base not like 'jobq.%' order by id")
	require.NoError(t, err)
	odd, err := pgx.CollectRows(rows, pgx.RowToStructByPos[oddRow])
	require.NoError(t, err)
	for _, row := range odd {
		job, err := client.Get(t.Context(), row.ID)
		if strings.HasPrefix(row.Value, "(") && slices.Contains([]string{"args", "metadata", "checkpoint", "result"}, row.Name) {
			require.ErrorIs(t, err, jobq.ErrUnreadable, row)
			require.ErrorContains(t, err, row.Name, row)
		} else {
			require.NoError(t, err, row)
		}
		require.Equal(t, row.ID, job.ID)
		_, err = json.Marshal(job)
		require.NoError(t, err, row)
		_, err = monitor.New(client).Why(t.Context(), row.ID)
		require.NoError(t, err, row)
	}
}

// oddRow is a row of odd: a job, and which column of it has which odd value.
type oddRow struct {
	ID                int64
	Base, Name, Value string
}
