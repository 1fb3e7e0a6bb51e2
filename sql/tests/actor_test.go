package tests

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

type actorCall struct{ before, call string }

// actorCalls is a call of each function that has an actor, without one, and what must be there before. What is called by
// another one of them has "".
var actorCalls = map[string]actorCall{
	"act":              {"select jobq.enqueue('k')", "select * from jobq.act(null, 'cancel', array(select id from jobq.pending), '{null}', '{null}', null, null, null)"},
	"act_dependents":   {"select jobq.enqueue('k')", "select * from jobq.act_dependents(null, array(select id from jobq.pending), 0)"},
	"act_clone":        {"select jobq.enqueue('k')", "select * from jobq.act_clone(null, (select id from jobq.pending), '{\"priority\": 1}')"},
	"act_drain":        {"insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots) values ('w', 1, 'h', 'v', '{}', '{}', '{}')", "select jobq.act_drain(null, 'w')"},
	"act_lost":         {"insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots) values ('w', 1, 'h', 'v', '{}', '{}', '{}')", "select jobq.act_lost(null, 'w', null)"},
	"act_key":          {"", "select jobq.act_key(null, 'key_pause', 'q', 'a', null)"},
	"act_key_weight":   {"", "select jobq.act_key_weight(null, 'q', 'a', 3, null)"},
	"act_host":         {"", "select jobq.act_host(null, 'host_hold', 'h', null)"},
	"act_kind":         {"", "select jobq.act_kind(null, 'kind_pause', 'k', null)"},
	"act_kind_set":     {"", `select jobq.act_kind_set(null, 'k', '{"queue": "q"}')`},
	"act_queue":        {"", "select jobq.act_queue(null, 'pause', 'q', null)"},
	"act_queue_set":    {"", `select jobq.act_queue_set(null, 'q', '{"lease": "5 min"}')`},
	"act_settings":     {"", "select jobq.act_settings(null, '2 days')"},
	"audit_begin":      {"", "select jobq.audit_begin(null, 'drain', 'w', null)"},
	"audit_begin_many": {"", "select jobq.audit_begin_many(null, 'cancel', 'kind:k', null)"},
	"audit_resume": {
		"select jobq.audit_begin_many('first', 'cancel', 'kind:k', null)",
		"select jobq.audit_resume(null, (select id from jobq.audit)); update jobq.audit set actor = substr(note, length('resumed by ') + 1)",
	},
	"export_end":      {"", ""}, // needs a day that is over: it ends in audit_begin
	"schedule_pause":  {"select jobq.schedule_set('s', 'k', every => '1 h')", "select jobq.schedule_pause('s')"},
	"schedule_remove": {"select jobq.schedule_set('s', 'k', every => '1 h')", "select jobq.schedule_remove('s')"},
	"schedule_resume": {"select jobq.schedule_set('s', 'k', every => '1 h'), jobq.schedule_pause('s')", "select jobq.schedule_resume('s')"},
	"schedule_run":    {"select jobq.schedule_set('s', 'k', every => '1 h')", "select jobq.schedule_run('s')"},
	"schedule_set":    {"", "select jobq.schedule_set('s', 'k', every => '1 h')"},
	"undo":            {"select jobq.act_queue('first', 'pause', 'q', null)", "select * from jobq.undo(null, (select max(id) from jobq.audit))"},
	"act_begin":       {}, "schedule_put": {}, "schedule_record": {}, "schedule_undo": {}, "undo_begin": {}, "undo_whole": {},
}

// A call that names no actor is by the one that the session has set, and else by the login, not the role that it has taken
// on: in the audit, and where it says who has paused something.
func TestActorOfACallWithoutOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.OwnServer(t).URL("postgres"))
	require.NoError(t, pgtest.Migrate(ctx, pool.Config().ConnString(), "jobq"))
	_, err := pool.Exec(ctx, pgtest.Roles(t)+"; create role ana login superuser; grant jobq_admin to ana")
	require.NoError(t, err)
	rows, err := pool.Query(ctx, `select distinct p.proname::text from pg_proc p where p.pronamespace = 'jobq'::regnamespace and 'actor' = any(p.proargnames)`)
	require.NoError(t, err)
	functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Len(t, actorCalls, len(functions))
	for _, function := range functions {
		require.Contains(t, actorCalls, function)
		calls := actorCalls[function]
		if calls.call == "" {
			continue
		}
		for setting, want := range map[string]string{"billing app": "billing app", "": "ana"} {
			actor, paused := calls.actors(t, pool, setting)
			require.Equal(t, want, actor, function)
			for _, by := range paused {
				require.Equal(t, want, by, function)
			}
		}
	}
	_, err = pool.Exec(ctx, "select jobq.act_queue('', 'pause', 'q', null)")
	require.ErrorContains(t, err, "actor must be 1 to 255 characters, not 0", "an empty name is a mistake of the caller")
}

// actors are who has acted, as the audit says it, and who has paused something, when ana calls with that setting.
func (c *actorCall) actors(t *testing.T, pool *pgxpool.Pool, setting string) (actor string, paused []string) {
	t.Helper()
	ctx := context.Background()
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(ctx)) }()
	for _, sql := range []string{
		c.before, "set local session authorization ana", "set local role jobq_admin", "set local jobq.actor = '" + setting + "'", c.call,
	} {
		_, err := tx.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
	require.NoError(t, tx.QueryRow(ctx, "select actor from jobq.audit order by id desc limit 1").Scan(&actor))
	require.NoError(t, tx.QueryRow(ctx, `select array(select paused_by from jobq.queue where paused_by is not null
		union all select paused_by from jobq.kind where paused_by is not null union all select paused_by from jobq.paused_key
		union all select held_by from jobq.held_host union all select paused_by from jobq.schedule where paused_by is not null)`).Scan(&paused))
	return actor, paused
}
