package doctor_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/doctor"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
)

// patience ends a test that hangs. It bounds nothing: the machine may be busy.
const patience = 5 * time.Minute

func TestMain(m *testing.M) { pgtest.Main(m) }

// fault is one thing that is made wrong, and the check that must find it.
type fault struct {
	check    string
	severity doctor.Severity
	says     string // part of the problem, a full stop, and the advice
	plant    string // SQL, run outside of a transaction
	change   func(t *testing.T, url string, config *doctor.Config)
}

const (
	liveWorker = `insert into jobq.worker (id, pid, hostname, version, queues, kinds) values ('w%d', 1, 'h', '%s', '{"%s": 5}', '{%s}');`
	oldWorker  = `insert into jobq.worker (id, pid, hostname, version, queues, kinds, started_at) values ('w', 1, 'h', 'v', '{"q": 5}', '{k}', now() - interval '10 minutes');`
	oldJob     = `insert into jobq.pending (kind, queue, run_at, created_at) values ('%s', '%s', now() - interval '30 minutes', now() - interval '30 minutes');`
	newJob     = `insert into jobq.pending (kind, queue, run_at, created_at) values ('%s', '%s', now() - interval '2 minutes', now() - interval '2 minutes');`
	oldOfKey   = `insert into jobq.pending (kind, queue, partition_key, run_at, created_at) values ('%s', 'q', '%s', now() - interval '30 minutes', now() - interval '30 minutes');`
	freshOfKey = `insert into jobq.pending (kind, queue, partition_key) select 'k', 'q', 'a' from generate_series(1, 300);`
	// freshOfKeys are jobs of more keys than are looked at by their names. A claim has given turns to all of them, and to the key z before.
	freshOfKeys = `insert into jobq.pending (kind, queue, partition_key) select 'k', 'q', 'a' || i from generate_series(1, 300) i;
		insert into jobq.lane (queue, key, turn) select 'q', case i when 0 then 'z' else 'a' || i end, i from generate_series(0, 300) i;`
)

func faults() []fault {
	return []fault{
		{"transactions", doctor.Critical, "has had a transaction open", "", func(t *testing.T, url string, config *doctor.Config) {
			t.Helper()
			hold(t, url, "begin isolation level repeatable read", "select jobq.args_bytes_max() from jobq.pending")
			config.Limits.TransactionAge = time.Nanosecond
		}},
		{"prepared-transactions", doctor.Critical, `"forgotten"`, "begin; create table public.t (); prepare transaction 'forgotten';", func(t *testing.T, url string, config *doctor.Config) {
			t.Helper()
			t.Cleanup(func() { execute(t, url, "rollback prepared 'forgotten'") })
			config.Limits.TransactionAge = time.Nanosecond
		}},
		{"autovacuum", doctor.Warning, "lease", "alter table jobq.lease set (autovacuum_enabled = off)", nil},
		{"dead-rows", doctor.Warning, "table stat has 2000 dead rows and 1000 live ones: of its 0.3 MiB, the dead ones may have 0.2; it has never been vacuumed", `insert into jobq.stat select now() + i * interval '1 min', 0, 0, 0, 0, 0, 0, 0, 'q', 'k' from generate_series(1, 3000) i;
			delete from jobq.stat where minute < now() + interval '2000.5 min';`, func(t *testing.T, url string, config *doctor.Config) {
			t.Helper()
			config.Limits.DeadRows = 1000
			await(t, url, "select n_dead_tup = 2000 and n_live_tup = 1000 from pg_stat_user_tables where relname = 'stat'")
		}},
		{"partitions", doctor.Warning, "days of the history are not made", `do $$ begin execute 'drop table jobq.attempt_' || to_char((now() at time zone 'UTC')::date + 1, 'YYYYMMDD'); end $$`, nil},
		{"partitions", doctor.Warning, "past their retention", "select jobq.partition_add('run', (now() at time zone 'UTC')::date - 20)", nil},
		{"partitions", doctor.Warning, "past their retention", "select jobq.partition_add('run', (now() at time zone 'UTC')::date - 12), jobq.act_settings('a', null, failed_retention => '30 days')", nil},
		{"export", doctor.Warning, "was not exported", "select jobq.partition_add('run', (now() at time zone 'UTC')::date - 9), jobq.act_settings('a', null, keep_until_exported => true, exported_before => (now() at time zone 'UTC')::date - 9)", nil},
		{"default-partitions", doctor.Warning, "attempt_default", "insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id) values (1, '2001-01-01', '2001-01-01', 1, 'failed', 1, 'w')", nil},
		{"janitor", doctor.Critical, "for which others wait, and these were not freed", "insert into jobq.dependency_look (job_id, look_at) values (1, now() - interval '20 minutes')", nil},
		{"janitor", doctor.Critical, "scheduled job has been due", "insert into jobq.pending (kind, run_at, position) values ('k', now() - interval '20 minutes', null)", nil},
		{"janitor", doctor.Critical, "lease of a dead worker", `insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
			values (jobq.lease_id_next(), now() - interval '1 hour', now() - interval '20 minutes', 'dead', 'q', '{1}')`, nil},
		{"janitor", doctor.Warning, "summed up", "insert into jobq.stat_delta values (now() - interval '20 minutes', 0, 0, 1, 0, 0, 0, 0, 'q', 'k')", nil},
		{"janitor", doctor.Critical, "no janitor has ever run, and live workers have none inside: 1. run a janitor: `jobq janitor`", oldWorker, nil},
		{"janitor", doctor.Critical, "no janitor has run for 10m", oldWorker + "insert into jobq.janitor_seen (seen_at, janitor) values (now() - interval '10 minutes', 'j')", nil},
		{"janitor-errors", doctor.Warning, "disk full", "insert into jobq.event (type, source, message) values ('error', 'j', 'disk full')", nil},
		{"janitor-errors", doctor.Critical, "lease -5 cannot be reaped: no; the janitor passes it by", `insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
			values (-5, now() - interval '1 minute', now() - interval '1 s', 'dead', 'q', '{1}');
			insert into jobq.event (type, source, message) values ('error', 'j', 'lease -5 cannot be reaped: no')`, nil},
		{"queues", doctor.Critical, "queue lonely has 1 available jobs", fmt.Sprintf(oldJob, "k", "lonely"), nil},
		{"kinds", doctor.Critical, "kind unknown", fmt.Sprintf(liveWorker, 1, "v1", "q", "k") + fmt.Sprintf(oldJob, "unknown", "q"), nil},
		{"queues", doctor.Warning, "no worker has ever had it", fmt.Sprintf(newJob, "k", "misspelt"), nil},
		{"kinds", doctor.Warning, "and no worker there has ever had the kind", fmt.Sprintf(liveWorker, 1, "v1", "q", "k") + fmt.Sprintf(newJob, "misspelt", "q"), nil},
		{"waiting", doctor.Warning, "handle the kind: 1. `jobq why 1` says", fmt.Sprintf(liveWorker, 1, "v1", "q", "k") + fmt.Sprintf(oldJob, "k", "q"), nil},
		{"kinds", doctor.Critical, "kind unknown", fmt.Sprintf(liveWorker, 1, "v1", "q", "k") + freshOfKey + fmt.Sprintf(oldOfKey, "unknown", "z"), nil},
		{"kinds", doctor.Critical, "kind rare", fmt.Sprintf(liveWorker, 1, "v1", "q", "k") + freshOfKeys + fmt.Sprintf(oldOfKey, "rare", "z"), nil},
		{"waiting", doctor.Warning, "a job of kind k has waited in queue q", fmt.Sprintf(liveWorker, 1, "v1", "q", "k") + freshOfKey + fmt.Sprintf(oldOfKey, "k", "z"), nil},
		{"waiting", doctor.Warning, "`jobq why 301` says", fmt.Sprintf(liveWorker, 1, "v1", "q", "k") + `insert into jobq.pending (kind, queue) select 'k', 'q' from generate_series(1, 300);
			insert into jobq.pending (kind, queue, priority, run_at, created_at) values ('k', 'q', 9, now() - interval '30 minutes', now() - interval '30 minutes');`, nil},
		{"paused", doctor.Warning, "queue q was paused", "insert into jobq.queue (name, paused_at, paused_by) values ('q', now() - interval '3 days', 'ann');" + fmt.Sprintf(oldJob, "k", "q"), nil},
		{"paused", doctor.Warning, "kind k was paused", "insert into jobq.kind (name, paused_at, paused_by) values ('k', now() - interval '3 days', 'ann');" +
			fmt.Sprintf(liveWorker, 1, "v1", "q", "k") + fmt.Sprintf(oldJob, "k", "q"), nil},
		{"paused", doctor.Warning, `ago by ann. jobq queues resume q --key "a b"`, "insert into jobq.paused_key values ('q', 'a b', now() - interval '3 days', 'ann'), ('q', 'c', now(), 'ann')", nil},
		{"held-hosts", doctor.Warning, "host h2, with 0 live workers, was held 72h0m0s ago by ann: bad disk", "insert into jobq.held_host values ('h2', now() - interval '3 days', 'ann', 'bad disk'), ('h3', now(), 'ann', null)", nil},
		{"waiting", doctor.Warning, "are held: 1. let the host claim again: jobq workers release h", fmt.Sprintf(liveWorker, 1, "v1", "q", "k") + fmt.Sprintf(oldJob, "k", "q") + "insert into jobq.held_host values ('h', now(), 'ann')", nil},
		{"troubles", doctor.Warning, "worker w1 does not start jobs of kind k now: it rests here. Live workers with the kind: 1", fmt.Sprintf(liveWorker, 1, "v1", "q", "k") + `update jobq.worker set programs = '{"k": {"trouble": "it rests here"}, "j": {"trouble": ""}}'`, nil},
		{"paused", doctor.Warning, "by jobq", "insert into jobq.kind (name, crashes, crashed_at, paused_at, paused_by) values ('k', 5, now(), now(), 'jobq')", nil},
		{"lost-leases", doctor.Warning, "50 runs of queue q", "insert into jobq.stat values (date_trunc('minute', now()), 0, 0, 0, 0, 50, 50, 0, 'q', 'k')", nil},
		{"versions", doctor.Note, "v1 (1 workers), v2 (1 workers)", fmt.Sprintf(liveWorker, 1, "v1", "q", "k") + fmt.Sprintf(liveWorker, 2, "v2", "q", "k"), nil},
		{"schema", doctor.Critical, "index pending_due_idx", "drop index jobq.pending_due_idx", nil},
		{"schema", doctor.Warning, "function wake", `create or replace function jobq.wake(topic text, queue text) returns void language sql as 'select null::void'`, nil},
		{"schema", doctor.Warning, "function backoff_delay", `create or replace function jobq.backoff_delay(failures integer, base interval, cap interval) returns interval
			language sql volatile parallel safe return interval '1 s'`, nil}, // which PostgreSQL has as a tree, not as a text
		{"schema", doctor.Warning, "function schedule_pause", `do $$ begin execute replace(pg_get_functiondef('jobq.schedule_pause'::regproc), 'reason text DEFAULT NULL', 'reason text DEFAULT ''none'''); end $$`, nil},
		{"schema", doctor.Warning, "column queue.lease", "alter table jobq.queue alter lease set default '1 s'", nil},
		{"schema", doctor.Warning, "constraint queue: lease must be", `alter table jobq.queue drop constraint "lease must be 1 second to 30 days", add constraint "lease must be 1 second to 30 days" check (lease > interval '0')`, nil},
		{"schema", doctor.Warning, "column setting.finished_retention", "alter table jobq.setting alter finished_retention drop not null", nil},
		{"indexes", doctor.Critical, "pending_due_idx", "update pg_index set indisvalid = false where indexrelid = 'jobq.pending_due_idx'::regclass", nil},
		{"triggers", doctor.Critical, "jobq.pending.pending_wake", "alter table jobq.pending disable trigger pending_wake", nil},
		{"privileges", doctor.Warning, "insert on lease", "grant insert on jobq.lease to public", nil},
		{"privileges", doctor.Warning, "jobq_producer: select on pending", "grant select on jobq.pending to jobq_producer", nil},
		{"privileges", doctor.Critical, "jobq_worker: insert on lease", "revoke insert on jobq.lease from jobq_worker", nil},
		{"replica-identity", doctor.Warning, "stat_delta", "alter table jobq.stat_delta replica identity nothing", nil},
		{"replica-identity", doctor.Critical, "publication everything", "create publication everything for all tables; alter table jobq.run_default replica identity default", nil},
		{"search-path", doctor.Note, "schema public", "grant create on schema public to public", nil},
		{"defaults", doctor.Warning, "session_replication_role=replica is set for this database", "do $$ begin execute format('alter database %I set session_replication_role = replica', current_database()); end $$", nil},
		{"row-security", doctor.Critical, "pending", "alter table jobq.pending enable row level security", nil},
		{"settings", doctor.Warning, "synchronous_commit is off", "do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$", nil},
		{"connections", doctor.Warning, "connections are in use", "", func(_ *testing.T, _ string, config *doctor.Config) { config.Limits.ConnectionsShare = 1e-9 }},
		{"connections", doctor.Note, "2 live workers may open 300 connections when they have much to do, and the server allows 297.", fmt.Sprintf(liveWorker, 1, "v", "q", "k") + fmt.Sprintf(liveWorker, 2, "v", "q", "k") +
			fmt.Sprintf(liveWorker, 3, "v", "q", "k") + fmt.Sprintf(liveWorker, 4, "v", "q", "k") +
			"update jobq.worker set connections_max = 150 where id <> 'w3'; update jobq.worker set heartbeat_at = now() - interval '1 hour' where id = 'w4'", nil},
		{"clock", doctor.Warning, "differ by", "", func(_ *testing.T, _ string, config *doctor.Config) {
			config.Now = func() time.Time { return time.Now().Add(-time.Hour) }
		}},
		{"notifications", doctor.Warning, "did not arrive", "", func(t *testing.T, url string, config *doctor.Config) {
			t.Helper()
			config.Pool = unnotifiedPool(t, url)
			config.Limits.NotificationWithin = time.Second
		}},
	}
}

// Each fault is found by its own check, and by no other. The limit of connections is
// a share of the server's, so that is the one fault which is made by its limit alone.
func TestPlantedFaults(t *testing.T) { //nolint:tparallel // slots and the queue of notifications are the server's: one fault at a time
	t.Parallel()
	c := newClinic(t)
	for i, f := range faults() {
		t.Run(fmt.Sprintf("%s %s", f.check, f.says), func(t *testing.T) {
			url := c.database(t, fmt.Sprintf("fault_%d", i))
			execute(t, url, f.plant)
			config := doctor.Config{Pool: pgtest.Connect(t, url)}
			if f.change != nil {
				f.change(t, url, &config)
			}
			report := examine(t, config)
			require.Equal(t, []string{f.check}, found(report), report.Findings)
			require.Len(t, report.Findings, 1)
			require.Equal(t, f.severity, report.Findings[0].Severity)
			require.NotEmpty(t, report.Findings[0].Advice)
			require.Contains(t, report.Findings[0].Problem+". "+report.Findings[0].Advice, f.says)
			require.Equal(t, f.severity == doctor.Note, report.Healthy)
			require.Empty(t, report.Skipped)
		})
	}
	// Of the whole server, so that they come after the others.
	t.Run("replication-slots", func(t *testing.T) {
		url := c.database(t, "slots")
		execute(t, url, "select pg_create_logical_replication_slot('unused', 'test_decoding')")
		require.Equal(t, []string{"replication-slots"}, found(examine(t, doctor.Config{Pool: pgtest.Connect(t, url)})))
		execute(t, url, "select pg_drop_replication_slot('unused')")
	})
	t.Run("notify-queue", func(t *testing.T) {
		url := c.database(t, "notify")
		hold(t, url, "listen a", "begin", "select 1")
		execute(t, url, "select pg_notify('a', i || repeat('x', 7000)) from generate_series(1, 100) i")
		config := doctor.Config{Pool: pgtest.Connect(t, url)}
		config.Limits.NotifyQueueShare = 1e-9
		require.Equal(t, []string{"notify-queue"}, found(examine(t, config)))
	})
	t.Run("standby", func(t *testing.T) {
		url := c.database(t, "standby")
		standby := pgtest.SocketURL(pgtest.StartStandby(t, c.server))
		execute(t, url, "select pg_create_physical_replication_slot('replica')")
		hold(t, standby, "begin isolation level repeatable read", "select 1")
		for _, step := range []struct{ set, ready, says string }{
			{"select 1", "select max(age(backend_xmin)) > 10 from pg_stat_activity where backend_type = 'walsender'", "the standby walreceiver (local) is in use and keeps the dead rows of the last "},
			{"alter system set primary_slot_name = 'replica'", "select active and age(xmin) > 10 from pg_replication_slots where slot_name = 'replica'", `the replication slot "replica" is in use and keeps the dead rows of the last `},
		} {
			for _, sql := range []string{"alter system set hot_standby_feedback = on", "alter system set wal_receiver_status_interval = '1s'", step.set, "select pg_reload_conf()"} {
				execute(t, standby, sql)
			}
			for range 20 {
				execute(t, url, "select txid_current()")
			}
			await(t, url, step.ready)
			config := doctor.Config{Pool: pgtest.Connect(t, url), Limits: doctor.Limits{XIDsHeld: 10}}
			report := examine(t, config)
			require.Equal(t, []string{"replication-slots"}, found(report), report.Findings)
			require.Len(t, report.Findings, 1)
			require.Contains(t, report.Findings[0].Problem, step.says)
			require.Contains(t, report.Findings[0].Advice, "end the oldest query on the standby")
		}
	})
}

// A database with a janitor at work has no finding, nothing is skipped, and the
// doctor leaves it so in every schema. A busy transaction of the janitor's is none.
func TestHealthy(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	url := c.database(t, "sound")
	require.NoError(t, pgtest.Migrate(context.Background(), url, "Other-1"))
	for _, schema := range []string{"jobq", "Other-1"} {
		pool := pgtest.Connect(t, url)
		client, err := jobq.NewClient(pool, &jobq.Config{Schema: schema})
		require.NoError(t, err)
		j, err := janitor.New(client, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- j.Run(ctx) }()
		await(t, url, fmt.Sprintf(`select count(*) = 12 from pg_inherits i join pg_class c on c.oid = i.inhrelid
			where c.relkind = 'r' and c.relnamespace = (select oid from pg_namespace where nspname = '%s') and c.relname ~ '_[0-9]{8}$'`, schema))
		report := examine(t, doctor.Config{Pool: pool, Schema: schema})
		require.Empty(t, report.Findings)
		require.Empty(t, report.Skipped)
		require.True(t, report.Healthy)
		require.Equal(t, doctor.CheckNames(), report.Checks)
		cancel()
		require.NoError(t, <-done)
	}
}

// No check is compiled (JIT), which would take two seconds beside a large backlog.
func TestChecksAreNotCompiled(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	pool := pgtest.Connect(t, c.database(t, "large"))
	_, err := pool.Exec(context.Background(), fmt.Sprintf(oldJob, "k", "q"))
	require.NoError(t, err)
	pgtest.RefuseJIT(t, pool)
	report := examine(t, doctor.Config{Pool: pool})
	require.NotContains(t, fmt.Sprint(report), "may be compiled")
	require.Contains(t, fmt.Sprint(report), "queue q has 1 available jobs")
}

// Jobs wait as they are meant to whose key is at its limit, or is held by the order of its jobs.
func TestHeldKeysAreHealthy(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	url := c.database(t, "held")
	execute(t, url, fmt.Sprintf(liveWorker, 1, "v1", "q", "k")+fmt.Sprintf(oldOfKey, "k", "a")+`insert into jobq.queue (name, key_limit) values ('q', 1);
		insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids) values (1, now(), now() + interval '1 hour', 'w1', 'q', '{1000}');
		insert into jobq.lane (queue, key, full_limit, looked_at, held_leases, held_slots) values ('q', 'a', 1, now(), '{1}', '{1}')`)
	require.Empty(t, examine(t, doctor.Config{Pool: pgtest.Connect(t, url)}).Findings)
	execute(t, url, "delete from jobq.lease")
	require.Equal(t, []string{"waiting"}, found(examine(t, doctor.Config{Pool: pgtest.Connect(t, url)})))
}

// A viewer is answered, and told what it may not see; a producer, who may read
// nothing, learns that of each check, and what it may see all the same.
func TestRightsMissing(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	address := c.database(t, "rights")
	execute(t, address, "create role viewer login in role jobq_viewer; create role producer login in role jobq_producer;"+fmt.Sprintf(oldJob, "k", "lonely"))
	hold(t, address, "begin", "select 1 from jobq.pending")
	as := func(role string) *doctor.Report {
		parsed, err := url.Parse(address)
		require.NoError(t, err)
		parsed.User = url.User(role)
		return examine(t, doctor.Config{Pool: pgtest.Connect(t, parsed.String())})
	}
	report := as("viewer")
	require.Equal(t, []string{"queues"}, found(report))
	require.Len(t, report.Skipped, 1)
	require.Equal(t, "transactions", report.Skipped[0].Check)
	require.Contains(t, report.Skipped[0].Reason, "pg_read_all_stats")

	report = as("producer")
	require.Empty(t, found(report))
	var skipped []string
	for _, s := range report.Skipped {
		skipped = append(skipped, s.Check)
	}
	require.Subset(t, skipped, []string{"queues", "kinds", "janitor", "paused"})
	require.NotContains(t, skipped, "settings")
}

// Where a later jobq has changed the tables, and this one works with them, it does not
// complain of what it does not know.
func TestTablesOfALaterJobq(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	url := c.database(t, "later")
	execute(t, url, "alter table jobq.setting alter finished_retention drop not null")
	pool := pgtest.Connect(t, url)
	require.Equal(t, []string{"schema"}, found(examine(t, doctor.Config{Pool: pool})))
	execute(t, url, "insert into jobq.jobq_migration (version, compatible_from) select max(version) + 1, max(version) from jobq.jobq_migration")
	report := examine(t, doctor.Config{Pool: pool})
	require.Empty(t, found(report))
	require.Len(t, report.Skipped, 1)
	require.Equal(t, "schema", report.Skipped[0].Check)
	require.Contains(t, report.Skipped[0].Reason, "a later jobq has changed the tables")
}

// A check that cannot have its lock says so, and the others are done.
func TestCheckThatWaits(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	url := c.database(t, "locked")
	execute(t, url, fmt.Sprintf(oldJob, "k", "lonely"))
	hold(t, url, "begin", "lock table jobq.stat_delta")
	report := examine(t, doctor.Config{Pool: pgtest.Connect(t, url)})
	require.Equal(t, []string{"queues", "schema", "janitor", "lost-leases"}, found(report))
	for _, of := range report.Findings[1:3] {
		require.Contains(t, of.Problem, "the check could not be done")
		require.Contains(t, of.Problem, "lock timeout")
	}
}

// Behind PgBouncer in transaction mode it is a note that sessions are shared, and
// notifications are not tried.
func TestPooler(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	url := c.database(t, "pooled")
	bouncer := pgtest.StartPgBouncer(t, url, map[string]string{"pool_mode": "transaction", "default_pool_size": "1"})
	report := examine(t, doctor.Config{Pool: pgtest.Connect(t, bouncer.URL(t, url)), Sessions: db.SessionsAuto})
	require.Equal(t, []string{"pooler"}, found(report))
	require.True(t, report.Healthy)
	require.Equal(t, "notifications", report.Skipped[0].Check)
}

// A listen URL that gives a direct connection is tested as workers use it: the note no longer
// says that they poll. One that leads elsewhere, nowhere, or through the pooler is found.
func TestListenURL(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	url := c.database(t, "listened")
	pooled := pgtest.StartPgBouncer(t, url, map[string]string{"pool_mode": "transaction"}).URL(t, url)
	elsewhere := c.database(t, "elsewhere")
	for name, test := range map[string]struct {
		listen, check string
		severity      doctor.Severity
		says          string
	}{
		"direct":       {url, "pooler", doctor.Note, "come by the direct connection of the listen URL"},
		"elsewhere":    {elsewhere, "notifications", doctor.Critical, "does not lead to the pool's database"},
		"nowhere":      {"host=/nowhere", "notifications", doctor.Warning, "leads to no server"},
		"the same way": {pooled, "notifications", doctor.Warning, "through a pooler"},
	} {
		listen, err := pgxpool.ParseConfig(test.listen)
		require.NoError(t, err)
		report := examine(t, doctor.Config{Pool: pgtest.Connect(t, pooled), Listen: listen})
		require.Equal(t, test.check, report.Findings[0].Check, "%s: %v", name, report.Findings)
		require.Equal(t, test.severity, report.Findings[0].Severity, name)
		require.Contains(t, report.Findings[0].Problem, test.says, name)
		require.Empty(t, report.Skipped, name)
	}
}

// docs/doctor.md explains every check, and no other.
func TestDocs(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../docs/doctor.md")
	require.NoError(t, err)
	var documented []string
	for _, heading := range regexp.MustCompile("(?m)^### (.+)$").FindAllStringSubmatch(string(content), -1) {
		documented = append(documented, heading[1])
	}
	require.Equal(t, doctor.CheckNames(), documented)
}
