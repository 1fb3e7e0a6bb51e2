package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// ofKind is what a job has that may be of its kind.
func (q *queue) ofKind(id int) string {
	q.Helper()
	return q.text("select concat_ws(' ', queue, priority, max_attempts, timeout, backoff_base, backoff_max) from jobq.pending where id = $1", id)
}

const mailSettings = `{"queue": "post", "priority": 5, "max_attempts": 3, "timeout": "1 min", "backoff_base": "10 s", "backoff_max": "1 h"}`

// A job whose producer gives none has the defaults of its kind, in each way to add one but a plain INSERT; what is given
// wins, be it 0 or the default of all kinds; jobs of other kinds, and those that are there, stay as they are.
func TestKindDefaults(t *testing.T) {
	t.Parallel()
	const plain, mail = "default 0 25", "post 5 3 00:01:00 00:00:10 01:00:00"
	const given = "default 0 25 00:00:02 00:00:03 00:00:04"
	q := setUp(t)
	before := q.number("select jobq.enqueue('mail')")
	require.Equal(t, "true", q.text("select (pg_sequence_last_value('jobq.kind_setting_seq') is null)::text"), "nothing is looked for yet")
	q.exec("select jobq.act_kind_set('ann', 'mail', $1::jsonb)", mailSettings)
	q.exec(`select jobq.act_kind_set('ann', 'half', '{"max_attempts": 2}')`)
	require.Equal(t, plain, q.ofKind(before))
	for sql, want := range map[string]string{
		"select jobq.enqueue('mail')":                                                                 mail,
		"select jobq.enqueue('mail', '{}'::jsonb)":                                                    mail,
		"select jobq.enqueue('mail', '{}'::json)":                                                     mail,
		"select jobq.enqueue('mail', '{}')":                                                           mail,
		"select jobq.enqueue('half')":                                                                 "default 0 2",
		"select jobq.enqueue('other')":                                                                plain,
		"select jobq.enqueue('mail', after => array[jobq.enqueue('other')])":                          mail,
		`select jobq.enqueue('mail', unique_key => 'a', uniqueness => '{"for": "1 h"}'::jsonb)`:       mail,
		`select id from jobq.enqueue_many('[{"kind": "mail", "queue": null}]')`:                       mail,
		`select id from jobq.enqueue_many('[{"kind": "mail", "priority": 0}]')`:                       "post 0 3 00:01:00 00:00:10 01:00:00",
		"select jobq.enqueue('mail', priority => 0)":                                                  "post 0 3 00:01:00 00:00:10 01:00:00",
		"select jobq.enqueue('mail', max_attempts => 25, queue => 'default')":                         "default 5 25 00:01:00 00:00:10 01:00:00",
		"insert into jobq.pending (kind) values ('mail') returning id":                                plain,
		`select jobq.enqueue('mail', null::jsonb, 'default', 0, null, 25, null, '2 s', '3 s', '4 s')`: given,
		`select id from jobq.enqueue_many('[{"kind": "mail", "queue": "default", "priority": 0, "max_attempts": 25, "timeout": "2 s",
			"backoff_base": "3 s", "backoff_max": "4 s"}]')`: given,
	} {
		require.Equal(t, want, q.ofKind(q.number(sql)), sql)
	}
	last := q.number("select max(id) from jobq.pending")
	q.exec(`select * from jobq.enqueue_many('[{"kind": "mail"}, {"kind": "other"}, {"kind": "half"}, {"kind": "mail", "max_attempts": 9}]')`)
	require.Equal(t, "post 3, default 25, default 2, post 9", q.text("select string_agg(concat_ws(' ', queue, max_attempts), ', ' order by id) from jobq.pending where id > $1", last),
		"each job has those of its own kind")
}

// The ticks of a schedule have the defaults that the kind has when they are added; what the schedule says wins.
func TestKindDefaultsOfASchedule(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.schedule_set('s', 'mail', every => '1 h'), jobq.schedule_set('own', 'mail', every => '1 h', queue => 'default', priority => 0, max_attempts => 25)")
	require.Equal(t, "default 0 25", q.ofKind(q.number("select jobq.schedule_run('s')")))
	q.exec("select jobq.act_kind_set('ann', 'mail', $1::jsonb)", mailSettings)
	require.Equal(t, "post 5 3 00:01:00 00:00:10 01:00:00", q.ofKind(q.number("select jobq.schedule_run('s')")))
	require.Equal(t, "default 0 25 00:01:00 00:00:10 01:00:00", q.ofKind(q.number("select jobq.schedule_run('own')")))
}

// Settings of a kind are changed, audited and undone; those that are so already write nothing; what cannot be is refused
// with its name, and so is an undo when they were changed since.
func TestKindSettings(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	set := func(kind, change string) int {
		return q.number("select coalesce(jobq.act_kind_set('ann', $1, $2::jsonb), 0)", kind, change)
	}
	stored := func() string {
		return q.text("select coalesce(string_agg((to_jsonb(k) - 'name')::text, ' '), '') from jobq.kind_setting k where name = 'mail'")
	}
	require.Zero(t, set("mail", `{}`))
	require.Zero(t, set("mail", `{"queue": null, "owner": null}`))
	require.Empty(t, stored(), "a misspelt kind gets no row")
	first := set("mail", `{"max_attempts": 3, "timeout": "90 s", "owner": "team-mail"}`)
	require.NotZero(t, first)
	require.Zero(t, set("mail", `{"max_attempts": 3, "timeout": "1.5 min"}`))
	second := set("mail", `{"max_attempts": null, "runbook": "https://example.com"}`)
	require.JSONEq(t, `{"queue": null, "priority": null, "max_attempts": null, "timeout": "00:01:30", "backoff_base": null, "backoff_max": null,
		"owner": "team-mail", "runbook": "https://example.com"}`, stored())
	require.Equal(t, `kind_settings mail {"runbook": "https://example.com", "max_attempts": null} {"runbook": null, "max_attempts": 3}`,
		q.text("select concat_ws(' ', action, target, change, replaced) from jobq.audit where id = $1", second))
	require.ErrorContains(t, q.refusal("select * from jobq.undo('ann', $1)", first), "the settings of kind mail have been changed meanwhile, by action")
	q.exec("select * from jobq.undo('ann', $1)", second)
	require.Contains(t, stored(), `"max_attempts": 3`)
	require.Contains(t, stored(), `"runbook": null`)
	q.exec("select jobq.act_kind('ann', 'kind_pause', 'mail', null), jobq.act_kind('ann', 'kind_resume', 'mail', null)")
	require.Contains(t, stored(), `"max_attempts": 3`, "a resume forgets the pause, and not the settings")

	for change, want := range map[string]string{
		`[]`:                            "change must be a JSON object",
		`{"attempts": 3}`:               `change: unknown member "attempts"; there are queue, priority, max_attempts,`,
		`{"max_attempts": 0}`:           "max_attempts must be 1 to 32767, not 0",
		`{"max_attempts": 40000}`:       "max_attempts must be 1 to 32767, not 40000",
		`{"max_attempts": "x"}`:         "max_attempts must be a whole number, 1 to 32767",
		`{"priority": 40000}`:           "priority must be -32768 to 32767, not 40000",
		`{"queue": ""}`:                 "queue must be 1 to 128 characters, not 0",
		`{"queue": {}}`:                 "queue must be text, not object",
		`{"timeout": "1 month"}`:        "without months",
		`{"timeout": "0"}`:              "timeout must be positive",
		`{"backoff_base": "-1 s"}`:      "backoff_base must be positive",
		`{"backoff_max": "11 years"}`:   "backoff_max must be positive, at most 10 years",
		`{"owner": ""}`:                 "owner must be 1 to 255 characters, not 0",
		`{"owner": 7}`:                  "owner must be text, not number",
		`{"runbook": ""}`:               "runbook must be 1 to 1024 characters, not 0",
		`{"kind": "other", "queue": 1}`: `change: unknown member "kind"`,
	} {
		require.ErrorContains(t, q.refusal("select jobq.act_kind_set('ann', 'mail', $1::jsonb)", change), want)
	}
	require.ErrorContains(t, q.refusal("select jobq.act_kind_set('ann', '', '{}')"), "kind must be 1 to 128 characters")
	require.ErrorContains(t, q.refusal("select jobq.act_kind_set('ann', 'k', null)"), "change must be a JSON object")
}

// Producers get the defaults without a right to read them, and only admins change them.
func TestKindSettingsOfRoles(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.OwnServer(t).URL("postgres"))
	require.NoError(t, pgtest.Migrate(ctx, pool.Config().ConnString(), "jobq"))
	_, err := pool.Exec(ctx, pgtest.Roles(t))
	require.NoError(t, err)
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	as := func(role, sql string) error {
		_, err := conn.Exec(ctx, "set role jobq_"+role)
		require.NoError(t, err)
		_, err = conn.Exec(ctx, sql)
		return err
	}
	const set = `select jobq.act_kind_set('ann', 'mail', '{"queue": "post"}')`
	for _, role := range []string{"producer", "worker", "viewer", "web"} {
		require.ErrorContains(t, as(role, set), "permission denied", role)
	}
	require.NoError(t, as("admin", set))
	require.NoError(t, as("admin", "select * from jobq.undo('ann', 1)"))
	require.NoError(t, as("admin", set))
	require.ErrorContains(t, as("producer", "select name from jobq.kind_setting"), "permission denied")
	for _, role := range []string{"producer", "worker", "admin"} {
		require.NoError(t, as(role, "select jobq.enqueue('mail') union all select id from jobq.enqueue_many('[{\"kind\": \"mail\"}]')"), role)
	}
	for _, role := range []string{"worker", "viewer", "admin"} {
		require.NoError(t, as(role, "select name from jobq.kind_setting"), role)
	}
	_, err = conn.Exec(ctx, "reset role")
	require.NoError(t, err)
	var jobs int
	require.NoError(t, conn.QueryRow(ctx, "select count(*) from jobq.pending where queue = 'post'").Scan(&jobs))
	require.Equal(t, 6, jobs)
}
