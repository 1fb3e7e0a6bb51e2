package janitor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
)

// What is old is forgotten, however much of it there is, and the rest is kept:
// stats after 30 days, events after 7, what people did after 90, output of runs
// that have ended after minutes, unique keys that were kept until now, for what those waited who have died, and what the default partitions have caught as
// long ago as the history goes back.
func TestForgetsWhatIsOld(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec(`insert into jobq.stat (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
		select date_trunc('minute', now()) - age - i * interval '1 minute', 'q', 'k', 1, 0, 0, 0, 0, 0, 0
		from generate_series(0, 11999) i, unnest(array[interval '31 days', '1 day']) age where age > '1 day' or i < 100`)
	f.exec(`insert into jobq.event (at, type, source)
		select now() - age - i * interval '1 s', 'stalled', 'old' from generate_series(0, 11999) i, unnest(array[interval '8 days', '1 day']) age where age > '1 day' or i < 100`)
	f.exec(`insert into jobq.schedule_tick (schedule, tick_at)
		select 'old', now() - age - i * interval '1 s' from generate_series(0, 11999) i, unnest(array[interval '8 days', '1 day']) age where age > '1 day' or i < 100`)
	f.exec("insert into jobq.audit (at, actor, action) select now() - age, 'ann', 'cancel' from unnest(array[interval '92 days', '91 days', '1 day']) age")
	f.exec(`insert into jobq.audit_job (audit_id, job_id, lease_token, state_before, state_after, before)
		select a.id, i, 1, 'failed', 'available', '{}' from jobq.audit a, generate_series(1, 2500) i`)
	f.exec(`insert into jobq.output (job_id, lease_token, begins_at, ends_at, written_at, content)
		select i, 1, 0, 1, now() - i * interval '1 ms' - case when i <= 2500 then interval '6 minutes' else interval '-1 hour' end, 'x' from generate_series(1, 2600) i`)
	f.exec(`insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id)
		select i, now() - i * interval '1 ms' - interval '20 days', now(), 1, 'lost', 1, 'w' from generate_series(1, 2500) i`)
	f.exec("insert into jobq.waiter (id, expires_at) select i, now() + i * interval '1 h' from unnest(array[-1, 1]) i")
	f.exec("insert into jobq.awaited (job_id, waiter_id) select i, -1 from generate_series(1, 5000) i union all select 1, 1")
	f.exec(`insert into jobq.unique_key (kind, key, job_id, kept_until, job_over)
		select 'k', age::text || ' ' || i, i, now() - age, age > '0' or i <= 50 from generate_series(1, 12000) i, unnest(array[interval '1 hour', '-1 hour', '-2 hours']) age where age > '0' or i <= 100`)
	f.exec("insert into jobq.unique_key (kind, key, job_id, kept_until) select 'k', 'unfinished ' || i, i, now() - interval '1 hour' from generate_series(1, 100) i")
	f.finished(2500, "20 days", true)
	f.exec("insert into jobq.past_lease (id, claimed_at, owner, ended) select distinct r.lease_id, now(), 'w', '{-1}'::smallint[] from jobq.run r on conflict do nothing")
	require.Equal(t, 2500, f.number("select count(*) from jobq.run_default"))
	require.NotZero(t, f.number("select count(*) from jobq.past_lease_default"))
	f.start(janitor.Config{}, janitor.ChoreTimes(0, 0, 100*time.Millisecond)) // leases go after their jobs, with the next round
	f.eventually("select count(*) from jobq.output", 100)
	f.eventually("select count(*) from jobq.attempt_default", 0)
	f.eventually("select count(*) from jobq.run_default", 0)
	f.eventually("select count(*) from jobq.past_lease_default", 0)
	f.eventually("select count(*) from jobq.payload", 0)
	f.eventually("select count(*) from jobq.stat", 100)
	f.eventually("select count(*) from jobq.event where source = 'old'", 100)
	f.eventually("select count(*) from jobq.schedule_tick", 100)
	f.eventually("select count(*) from jobq.unique_key", 300)
	f.eventually("select count(*) from jobq.awaited", 1)
	f.eventually("select count(*) from jobq.waiter", 1)
	f.eventually("select count(*) from jobq.audit", 1)
	f.eventually("select count(*) from jobq.audit_job", 2500)
}

// A step whose transaction could not be committed is done again: else the args
// that it was about would stay for ever, when their day is dropped.
func TestStepThatWasNotCommitted(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	const jobs = 2500 // five steps
	f.exec("select jobq.partition_add('" + pgtest.History + "', (now() at time zone 'UTC')::date - 20)")
	f.finished(jobs, "20 days", true)
	f.exec("create sequence tries")
	f.exec(`create function refuse() returns trigger language plpgsql as $$ begin
		if nextval('public.tries') = 1 then raise 'not this time'; end if;
		return null; end $$`)
	f.exec(`create constraint trigger refuse after delete on jobq.payload deferrable initially deferred
		for each row when (old.job_id = 1200) execute function refuse()`)
	f.start(janitor.Config{}, janitor.ChoreTimes(0, 10*time.Millisecond, 0))
	f.eventually("select count(*) from pg_class where relname ~ '^"+pgtest.History+"_' and relname ~ to_char((now() at time zone 'UTC')::date - 20, 'YYYYMMDD')", 0)
	require.Zero(t, f.number("select count(*) from jobq.payload"))
	require.Equal(t, 2, f.number("select last_value from tries"))
}

// Somebody reads a day that retention has taken out, and so it cannot be dropped
// yet: each try goes on at its end, and does not read the whole day again.
func TestPlaceIsKeptAfterALockTimeout(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec("select jobq.partition_add('" + pgtest.History + "', (now() at time zone 'UTC')::date - 20)")
	f.finished(600, "20 days", true)
	f.exec("select jobq.partition_prune('" + pgtest.History + "')")
	f.exec("create sequence starts")
	f.exec("alter function jobq.payload_prune rename to payload_prune_real")
	f.exec(`create function jobq.payload_prune(after_day text, after_job bigint, job_count integer, payload_count integer)
		returns table (day text, last_job bigint, removed bigint) language plpgsql as $$ begin
			if after_job = 0 then perform nextval('public.starts'); end if;
			return query select p.* from jobq.payload_prune_real(after_day, after_job, job_count, payload_count) p;
		end $$`)
	reader := f.session("reader")
	_, err := reader.Exec(context.Background(), "begin")
	require.NoError(t, err)
	var name string
	require.NoError(t, reader.QueryRow(context.Background(),
		"select relname::text from pg_class where relname ~ '^"+pgtest.History+"_[0-9]{8}' and relkind = 'r' and not relispartition").Scan(&name))
	_, err = reader.Exec(context.Background(), "select from jobq."+name)
	require.NoError(t, err)

	f.start(janitor.Config{}, janitor.ChoreTimes(0, 4*time.Millisecond, 0))
	f.logged(`msg="chore failed" .*chore="prune payloads" .*lock timeout`, 4)
	require.Equal(t, 1, f.number("select last_value from starts"))
	_, err = reader.Exec(context.Background(), "rollback")
	require.NoError(t, err)
	f.eventually("select count(*) from pg_class where relname ~ '^"+pgtest.History+"_[0-9]{8}' and relkind = 'r' and not relispartition", 0)
	require.Zero(t, f.number("select count(*) from jobq.payload"))
}
