package main

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// rolesServer is a server of its own, since roles are the server's, with
// sql/roles.sql applied twice and a login in each role. It returns the owner's
// pool, and how to connect as one of them.
func rolesServer(t *testing.T) (owner *pgxpool.Pool, as func(role string) string) {
	t.Helper()
	ctx := context.Background()
	ownerURL := pgtest.OwnServer(t).URL("postgres")
	require.NoError(t, pgtest.Migrate(ctx, ownerURL, "jobq"))
	owner = pgtest.Connect(t, ownerURL)
	for range 2 {
		_, err := owner.Exec(ctx, pgtest.Roles(t))
		require.NoError(t, err)
	}
	for _, role := range []string{"producer", "web", "runner", "worker", "viewer", "admin"} {
		_, err := owner.Exec(ctx, fmt.Sprintf("create role my_%s login in role jobq_%[1]s", role))
		require.NoError(t, err)
	}
	return owner, func(role string) string {
		parsed, err := url.Parse(ownerURL)
		require.NoError(t, err)
		parsed.User = url.User("my_" + role)
		return parsed.String()
	}
}

// runOfSomebody makes a job run, and tells its id and the token of the run.
const runOfSomebody = `
	with l as (
	  insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
	    select jobq.lease_id_next(), now(), now() + interval '1 h', 'w', 'q', array[nextval('jobq.job_id_seq')] returning id, claimed_at, job_ids[1] as job
	)
	insert into jobq.run (id, lease_id, slot, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
	  select l.job, l.id, 1, now(), now(), 0, 0, 5, 0, false, 'q', 'k', '{}' from l;
	create temporary table run on commit drop as
	  select t.id, t.run || '.' || jobq.run_token_code(t.run) as token
    from (select l.job_ids[1] as id, l.id || '.' || (extract(epoch from l.claimed_at) * 1000000)::bigint || '.1' as run from jobq.lease l where l.owner = 'w' and l.queue = 'q') t;
	grant select on pg_temp.run to public`

// Each role may do what its name says, and nothing of what others do.
func TestRoles(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	owner, _ := rolesServer(t)
	failed := "(select id from jobq.job where finished_at is not null limit 1)"
	for _, test := range []struct{ sql, who string }{
		{"select jobq.enqueue('a', unique_key => 'k', args => jsonb_build_object('large', repeat('x', 5000)))", "producer worker admin"},
		{`select * from jobq.enqueue_many('[{"kind": "a"}, {"kind": "b", "unique_key": "u"}]')`, "producer worker admin"},
		{`select jobq.enqueue('b', args => '{"id": 1}', unique_key => 'u', uniqueness => '{"for": "1 h", "on_conflict": "replace"}')`, "producer worker admin"},
		{"insert into jobq.pending (kind, args, run_at) values ('a', '{}', now() + interval '1 h')", "producer worker admin"},
		{"insert into jobq.pending (kind, partition_key) values ('a', 'k')", "producer worker admin"},
		{`select * from jobq.own_enqueue('[{"kind": "a"}]')`, "web"},
		{"select jobq.own_cancel(1)", "web"},
		{"select * from jobq.own_job(1)", "web"},
		{"select jobq.own_has(1)", ""},
		{"select * from jobq.lane_prune('', '', 0, 1)", "worker"},
		{"select jobq.lane_hints_add('default', '{k}', true)", "worker"},
		{"select * from jobq.lane_claim('default', '{a}', 'w', '1 min', false, true, 0, 0, false)", "worker"},
		{"select * from jobq.lane_head_prune('', '', 1)", "worker"},
		{"select * from jobq.lane_next_lock('default', 'k', 'hold', '{a}')", "worker"},
		{"select jobq.lane_freed('default', 'k')", "admin"},
		{"select * from jobq.lane, jobq.lane_hint, jobq.lane_head, jobq.lane_next('default', 'k', 'stop')", "worker viewer admin"},
		{"insert into jobq.pending (kind, lease_token) values ('a', 7)", "worker admin"},
		{"insert into jobq.pending (kind, position) values ('a', -1)", "worker admin"},
		{"select jobq.complete((select id from pg_temp.run), (select token from pg_temp.run), '1')", "runner"},
		{"select jobq.fail((select id from pg_temp.run), (select token from pg_temp.run), 'e', '0')", "runner"},
		{"select jobq.snooze((select id from pg_temp.run), (select token from pg_temp.run), '0')", "runner"},
		{"select jobq.progress((select id from pg_temp.run), (select token from pg_temp.run), 1, 's', 'm')", "runner"},
		{"select jobq.checkpoint((select id from pg_temp.run), (select token from pg_temp.run), '1')", "runner"},
		{"select * from jobq.run_held((select id from pg_temp.run), (select token from pg_temp.run))", ""},
		{"select jobq.run_key()", "worker"},
		{"select jobq.run_token_code('1.1.1')", ""},
		{"select jobq.run_token_check(1, '1.1.1')", ""},
		{"select * from jobq.secret", ""},
		{"update jobq.secret set run_key = ''", ""},
		{"delete from jobq.secret", ""},
		{"insert into jobq.secret (run_key) values ('')", ""},
		{"lock table jobq.secret in access share mode", ""},
		{"select jobq.run_close((select id from pg_temp.run), (select token from pg_temp.run), 'completed', null, null, false, null)", ""},
		{"select lease_token from jobq.job", "worker viewer admin"},
		{"select * from jobq.job", "worker viewer admin"},
		{"select args from jobq.pending", "worker viewer admin"},
		{"select * from jobq.stats", "worker viewer admin"},
		{"select * from jobq.audit", "viewer admin"},
		{"select jobq.watch('me', '15 s'), jobq.watch_end('me')", "viewer admin"},
		{"insert into jobq.watcher values ('x', now())", ""},
		{"lock table jobq.watcher in row exclusive mode", ""},
		{"lock table jobq.digest in row exclusive mode", ""},
		{"select digest from jobq.digest", "viewer admin"},
		{"select * from jobq.result(1)", "worker viewer admin"},
		{"select jobq.await(1, '{1}', '{}', '30 s'), jobq.await_end(1)", "worker viewer admin"},
		{"select jobq.waiters_wake('{1}')", "worker admin"},
		{"insert into jobq.awaited values (1, 1)", ""},
		{"select setval('jobq.awaited_seq', 1)", ""},
		{"select jobq.tell('{}', null)", "worker"},
		{"select jobq.enqueue('a', after => array[jobq.enqueue('a')])", "producer worker admin"},
		{"select * from jobq.dependency, jobq.dependency_look", "worker viewer admin"},
		{"select * from jobq.parents(1)", "worker viewer admin"},
		{"select * from jobq.graph(1)", "worker viewer admin"},
		{"select * from jobq.dependency_step('-infinity', 1)", "worker"},
		{"select * from jobq.dependency_prune(0, 0, 0, 1)", "worker"},
		{"delete from jobq.dependency", "worker"},
		{"delete from jobq.pending", "worker admin"},
		{"insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids) select jobq.lease_id_next(), now(), now(), 'w', 'q', array[1]", "worker"},
		{"select * from jobq.unreadable_set_apart('default', '', -1, 0, 1)", "worker"},
		{"select jobq.job_set_apart(1, false)", ""},
		{"select jobq.job_unreadable(1)", ""},
		{"select jobq.notify('due', '1')", "worker admin"},
		{"select jobq.lease_id_next()", "worker admin"},
		{"select jobq.generation_check()", "worker admin"},
		{"select * from jobq.generation_turn for update", ""},
		{"select setval('jobq.timeline_seq', 9), setval('jobq.system_seq', 9)", ""},
		{"select jobq.lease_day(current_date)", "worker viewer admin"}, // lists of what ended lately
		{"insert into jobq.run select r.* from jobq.run r", "worker admin"},
		{"update jobq.run set state = 'completed'", "worker"},
		{"select from jobq.run for update", "worker admin"},
		{"delete from jobq.run", "worker admin"},
		{"insert into jobq.past_lease values (1, now(), 'w', '{}')", "worker admin"},
		{"update jobq.past_lease set ended = '{1}'", "worker"},
		{"insert into jobq.progress (job_id, lease_id) values (1, 1)", "worker"},
		{"delete from jobq.progress", "worker admin"},
		{"select * from jobq.run, jobq.lease, jobq.past_lease, jobq.progress", "worker viewer admin"},
		{"select setval('jobq.waiting_seq', 1)", ""},
		{"select setval('jobq.waiting_1_seq', 1)", ""},
		{"select jobq.wait_announce('default', 1)", "worker"},
		{"select jobq.sleep_announce(1)", "worker"},
		{"select jobq.line_changers()", "worker"},
		{"select jobq.worker_is_waiting('default')", "worker admin"},
		{"select jobq.partition_add('attempt', '2001-01-01')", "worker"},
		{"select jobq.partition_prune('" + pgtest.History + "')", "worker"},
		{"select jobq.payload_prune('', 0, 1, 1)", "worker"},
		{"select jobq.default_prune('" + pgtest.History + "', 0, 0, 1)", "worker"},
		{"select jobq.history_analyze('1 day')", "worker"},
		{"select jobq.audit_prune(0, 0, 1)", "worker"},
		{"drop table jobq.attempt_default", ""},
		{"truncate jobq." + pgtest.History, ""},
		{"update jobq.jobq_migration set version = 9", ""},
		{"create table jobq.mine ()", ""},
		{"select jobq.cancel(" + failed + ")", "admin"},
		{"select jobq.requeue(" + failed + ")", "admin"},
		{"select jobq.delete_job(" + failed + ")", "admin"},
		{"select * from jobq.act('me', 'requeue', array" + failed + "::bigint[], array['failed/0'], null, null, null, null)", "admin"},
		{"select * from jobq.act_dependents('me', array" + failed + "::bigint[], 0)", "admin"},
		{"select jobq.parents_reopen(1)", "admin"},
		{"select * from jobq.act_clone('me', " + failed + ", '{}')", "admin"},
		{"select jobq.act_drain('me', 'nobody')", "admin"},
		{"select jobq.act_lost('me', 'nobody', null)", "admin"},
		{"select jobq.wake('work', 'default')", "worker admin"},
		{"insert into jobq.pending (id, kind) values (7, 'k')", "worker admin"},
		{"select jobq.unique_key_take('k', 'key', 1)", "admin"},
		{"update jobq.lease set expires_at = now()", "worker"},
		{"delete from jobq.lease", "worker"},
		{"select * from jobq.act_queue('me', 'pause', 'default', null)", "admin"},
		{"select jobq.queue_known('default')", "viewer admin"},
		{"select * from jobq.why((select max(id) from jobq.job))", "viewer admin"},
		{"select * from jobq.why(1000000)", "viewer admin"},
		{"select jobq.act_kind('me', 'kind_pause', 'a', null)", "admin"},
		{"select * from jobq.act_host('me', 'host_hold', 'a', null)", "admin"},
		{"select * from jobq.act_host('me', 'host_release', 'a', null)", "admin"},
		{"select * from jobq.held_host", "worker viewer admin"},
		{"insert into jobq.held_host (host, held_by) values ('a', 'me')", "admin"},
		{"select * from jobq.act_key('me', 'key_pause', 'default', 'a', null)", "admin"},
		{"select * from jobq.act_key('me', 'key_pause', 'default', 'a', null) p, jobq.act_key('me', 'key_resume', 'default', 'a', null) r", "admin"},
		{"select * from jobq.act_key_weight('me', 'default', 'a', 3, null)", "admin"},
		{"select * from jobq.key_weight", "worker viewer admin"},
		{"insert into jobq.key_weight values ('default', 'a', 3)", "admin"},
		{"select jobq.lane_weights('default', 0, 9, '{}', 100)", "worker"},
		{"select jobq.lane_shares('default', '{a}', 9, 'all')", "worker"},
		{"select * from jobq.paused_key", "worker viewer admin"},
		{"delete from jobq.paused_key", "admin"},
		{"select jobq.lane_pause('default')", "worker"},
		{"select * from jobq.kinds_crashed('{a}', array[now()], '{v}', 'w')", "worker"},
		{"select * from jobq.kind", "worker viewer admin"},
		{"update jobq.kind set paused_at = null", "admin"},
		{"select jobq.error_pattern('e')", "worker viewer admin"},
		{"select jobq.act_settings('me', '2 days')", "admin"},
		{"select jobq.act_queue_set('me', 'q', '{\"lease\": \"5 s\"}')", "admin"},
		{"update jobq.queue set lease = '5 s'", "admin"},
		{"update jobq.setting set finished_retention = '2 days'", "admin"},
		{"insert into jobq.audit (actor, action) values ('somebody else', 'delete')", "admin"},
		{"select * from jobq.schedule, jobq.schedule_tick", "worker viewer admin"},
		{"select name, kind from jobq.schedule", "worker viewer admin"},
		{"select jobq.schedule_set('s', 'k', every => '1 s')", "admin"},
		{"select jobq.schedule_set('daily', 'other', every => '1 s')", "admin"},
		{"select jobq.schedule_pause('daily')", "admin"},
		{"select jobq.schedule_resume('daily')", "admin"},
		{"select jobq.schedule_run('daily')", "admin"},
		{"select jobq.schedule_remove('daily')", "admin"},
		{"select jobq.schedule_fire('daily', 1, (select cursor_at from jobq.schedule), array[now()], now(), null)", "worker"},
		{"update jobq.schedule set due_at = now(), error = 'wrong'", "worker admin"},
		{"update jobq.schedule set kind = 'mine'", "admin"},
		{"delete from jobq.schedule_tick", "worker"},
		{"select jobq.step_get((select id from pg_temp.run), (select token from pg_temp.run), 's')", "runner worker"},
		{"select jobq.step_put((select id from pg_temp.run), (select token from pg_temp.run), 's', '1')", "runner worker"},
		{"select jobq.step_sleep((select id from pg_temp.run), (select token from pg_temp.run), 's', '1 h')", "runner worker"},
		{"select jobq.step_wait((select id from pg_temp.run), (select token from pg_temp.run), 's', '1 h')", "runner worker"},
		{"select jobq.step_await((select id from pg_temp.run), (select token from pg_temp.run), 's', '{}')", "worker"},
		{"select jobq.emit('e', '1')", "producer worker admin"},
		{"select jobq.step_forget(job_id, 's') from jobq.step", "admin"},
		{"select * from jobq.step, jobq.emitted", "viewer admin"},
		{"insert into jobq.emitted values ('e', now(), null, '1')", ""},
		{"update jobq.step set result = '1'", ""},
		{"select jobq.step_prune(0, '', 1), jobq.emitted_prune(now(), '', 1), jobq.event_wake_rest(1)", "worker"},
	} {
		for _, role := range []string{"producer", "web", "runner", "worker", "viewer", "admin"} {
			tx, err := owner.Begin(ctx)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, `with added as (select jobq.enqueue('old') as id) select jobq.cancel(id) from added`)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "select jobq.schedule_set('daily', 'k', cron => '@daily')")
			require.NoError(t, err)
			if strings.Contains(test.sql, "pg_temp.run") { // a run for runners
				_, err = tx.Exec(ctx, runOfSomebody)
				require.NoError(t, err)
			}
			_, err = tx.Exec(ctx, "set local role jobq_"+role)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, test.sql)
			if strings.Contains(test.who, role) {
				require.NoError(t, err, "%s: %s", role, test.sql)
			} else {
				require.ErrorContains(t, err, "SQLSTATE 42501", "%s: %s", role, test.sql)
			}
			require.NoError(t, tx.Rollback(ctx))
		}
	}
	// The janitor of a worker may read all that it asks about its chores. Otherwise it
	// would do each of them whenever it is due.
	tx, err := owner.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "set local role jobq_worker")
	require.NoError(t, err)
	_, err = db.New(tx).ChoresFind(ctx, []string{"roll up stats", "tell of full notifications"}, db.Interval(time.Minute), 0)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(ctx))
}

// With another schema's name in place of jobq, in quotes as sql/roles.sql says,
// the roles are for that schema.
func TestRolesOfAnotherSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	ownerURL := pgtest.OwnServer(t).URL("postgres")
	require.NoError(t, pgtest.Migrate(ctx, ownerURL, "my-jobs"))
	owner := pgtest.Connect(t, ownerURL)
	_, err := owner.Exec(ctx, regexp.MustCompile(`\bjobq\b`).ReplaceAllString(pgtest.Roles(t), `"my-jobs"`))
	require.NoError(t, err)
	require.True(t, query[bool](t, owner, `select has_table_privilege('jobq_viewer', '"my-jobs".pending', 'select')`))
}

// The roles are enough for the commands: a producer enqueues, a worker works
// and keeps house, an operator acts and undoes; and the terminal UI of a viewer
// shows all of it live, with its keys disabled and the reason given.
func TestRolesAtWork(t *testing.T) {
	t.Parallel()
	owner, as := rolesServer(t)
	command := func(want int, role string, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(args, "--database-url", as(role))...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	w := startProcess(t, "worker", "--database-url", as("worker"), "--run", "good=echo done", "--run", "bad=sh -c 'echo no >&2; exit 1'")
	w.awaitLog(t, "leadership acquired")
	good := strings.TrimSpace(command(exitOK, "producer", "enqueue", "good"))
	bad := strings.TrimSpace(command(exitOK, "producer", "enqueue", "bad", "--max-attempts", "1"))
	eventually(t, owner, "completed", "select state::text from jobq.job where id::text = $1", good)
	eventually(t, owner, "failed", "select state::text from jobq.job where id::text = $1", bad)

	command(exitError, "producer", "list")
	require.Contains(t, command(exitOK, "viewer", "show", bad), "failed")
	require.Contains(t, command(exitFailed, "viewer", "wait", good, bad), `"state":"completed"`)
	require.Contains(t, command(exitError, "viewer", "requeue", bad), "permission denied")

	term := openTerminal(t, 120, 35)
	term.run("tui", "--database-url", as("viewer"), "--open", "jobs")
	term.await("● live")
	term.await("1-2 of 2")
	term.await(" RO ")
	for key, action := range map[string]string{"r": "requeue", "c": "cancel", "D": "delete"} {
		term.keys(key)
		term.await(action + ": role my_viewer may not change jobs")
	}
	eventually(t, owner, true, "select exists (select from jobq.watcher)")

	command(exitOK, "admin", "requeue", bad)
	eventually(t, owner, 2, "select count(*)::int from jobq.attempt where job_id::text = $1", bad)
	command(exitOK, "admin", "queues", "pause", "default")
	waits := strings.TrimSpace(command(exitOK, "producer", "enqueue", "good"))
	command(exitOK, "admin", "cancel", waits)
	term.await("cancelled")
	command(exitOK, "admin", "undo", "3")
	eventually(t, owner, "available", "select state::text from jobq.job where id::text = $1", waits)
	require.Contains(t, command(exitOK, "viewer", "audit"), "undoes")
	term.keys("q")
	term.await("\nready>\n")

	require.NoError(t, w.Process.Signal(syscall.SIGTERM))
	require.NoError(t, w.Wait())
	require.NotContains(t, w.log.String(), "permission denied")
}
