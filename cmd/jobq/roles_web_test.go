package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A web application adds jobs, and cancels and sees those that its own login has added, and no others, whoever added
// them: another web application, or a producer that writes what it likes into metadata but the reserved member.
func TestWebRole(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	owner, as := rolesServer(t)
	_, err := owner.Exec(ctx, "create role my_shop login in role jobq_web; create role my_blog login in role jobq_web")
	require.NoError(t, err)
	shop, blog, producer := pgtest.Connect(t, as("shop")), pgtest.Connect(t, as("blog")), pgtest.Connect(t, as("producer"))
	add := func(pool *pgxpool.Pool, jobs string) int64 {
		t.Helper()
		return query[int64](t, pool, "select id from jobq.own_enqueue($1) order by id desc limit 1", jobs)
	}
	const seen = `select coalesce((select to_jsonb(j) from jobq.own_job($1) j)::text, 'nothing')`

	id := add(shop, `[{"kind": "a", "args": {"id": 1}, "metadata": {"page": 7, "added_by": "my_blog"}}]`)
	require.JSONEq(t, `{"page": 7, "added_by": "my_shop"}`, query[string](t, owner, "select metadata::text from jobq.job where id = $1", id))
	require.Contains(t, query[string](t, shop, seen, id), `"state": "available"`)
	_, err = shop.Exec(ctx, "set session authorization my_blog")
	require.ErrorContains(t, err, "SQLSTATE 42501")
	fromProducer := query[int64](t, producer, "select jobq.enqueue('a')")
	for _, foreign := range []struct {
		pool *pgxpool.Pool
		id   int64
	}{{blog, id}, {shop, fromProducer}, {shop, 1000000}} {
		require.Equal(t, "nothing", query[string](t, foreign.pool, seen, foreign.id))
		require.True(t, query[bool](t, foreign.pool, "select jobq.own_cancel($1) is null", foreign.id))
	}
	require.Equal(t, 2, query[int](t, owner, "select count(*)::int from jobq.job where state = 'available'"))

	require.NoError(t, pgtest.MakeRunning(ctx, owner, id))
	_, err = owner.Exec(ctx, "insert into jobq.progress (job_id, lease_id, progressed_at, percent, stage, message) select id, lease_id, now(), 40, 'read', 'page 4 of 10' from jobq.run")
	require.NoError(t, err)
	require.JSONEq(t, `{"state": "running", "progress_percent": 40, "progress_stage": "read", "progress_message": "page 4 of 10", "result": null}`,
		query[string](t, shop, seen, id))
	require.Equal(t, "running", query[string](t, shop, "select jobq.own_cancel($1)::text", id))
	require.True(t, query[bool](t, owner, "select cancel_requested_at is not null from jobq.job where id = $1", id))
	_, err = owner.Exec(ctx, `update jobq.run set state = 'completed', finished_at = now(), result = '{"pages": 10}' where id = $1`, id)
	require.NoError(t, err)
	require.Contains(t, query[string](t, shop, seen, id), `"result": {"pages": 10}`)

	waits := add(shop, `[{"kind": "b", "run_at": "2100-01-01"}]`)
	require.Equal(t, "cancelled", query[string](t, shop, "select jobq.own_cancel($1)::text", waits))
	require.Contains(t, query[string](t, shop, seen, waits), `"state": "cancelled"`)
}

// With the calls of a web application nothing of others is changed or learned: not by a unique key, not by waiting for
// their jobs, not by odd arguments.
func TestWebRoleAndOthers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	owner, as := rolesServer(t)
	web := pgtest.Connect(t, as("web"))
	foreign := query[int64](t, owner, "select jobq.enqueue('a', args => '{\"id\": 1}', unique_key => 'k')")
	own := query[int64](t, web, `select id from jobq.own_enqueue('[{"kind": "a", "unique_key": "mine"}]')`)
	for jobs, want := range map[string]string{
		`[{"kind": "a", "unique_key": "k", "uniqueness": {"on_conflict": "replace"}}]`: "jobs[0]: another application has a job with this unique key",
		`[{"kind": "b", "after": [1]}]`:                     "jobs[0]: after: no such job: 1",
		`[{"kind": "b", "after": [1000000]}]`:               "jobs[0]: after: no such job: 1000000",
		`[{"kind": "b"}, {"kind": "b", "after": ["x", 1]}]`: "jobs[1]: after: no such job: 1",
		`[{"kind": "b", "after": [0.5]}]`:                   "after",
		`[{"kind": "b", "after": [1e30]}]`:                  "after",
		`[{"kind": "b", "after": 1}]`:                       "after",
		`[{"kind": "b", "metadata": [1]}]`:                  "jobs[0]: metadata must be a JSON object, not array",
		`[{"kind": "b", "metadata": "x"}]`:                  "jobs[0]: metadata must be a JSON object, not string",
		`[{"knid": "b"}]`:                                   `jobs[0]: unknown member "knid"`,
		`["b"]`:                                             "jobs[0]: must be a JSON object",
		`{"kind": "b"}`:                                     "jobs must be a JSON array of objects",
		`null`:                                              "jobs must be a JSON array of objects",
	} {
		_, err := web.Exec(ctx, "select * from jobq.own_enqueue($1)", jobs)
		require.ErrorContains(t, err, want, jobs)
	}
	_, err := web.Exec(ctx, "select jobq.own_cancel(null)")
	require.ErrorContains(t, err, "job_id must not be null")
	_, err = web.Exec(ctx, "select * from jobq.own_enqueue(null)")
	require.ErrorContains(t, err, "jobs must be a JSON array of objects")
	require.Equal(t, `{"id": 1}`, query[string](t, owner, "select args::text from jobq.job where id = $1", foreign))
	require.Equal(t, 2, query[int](t, owner, "select count(*)::int from jobq.job"))

	replace := `[{"kind": "a", "args": {"id": 2}, "unique_key": "mine", "uniqueness": {"on_conflict": "replace"}}]`
	require.Equal(t, own, query[int64](t, web, "select id from jobq.own_enqueue($1) where replaced", replace))
	require.Equal(t, 0, query[int](t, web, "select count(*)::int from jobq.own_enqueue('[]')"))
	require.Equal(t, 2, query[int](t, web, `select count(*)::int from jobq.own_enqueue(format('[{"kind": "b", "name": "n", "metadata": null}, {"kind": "b", "after": ["n", %s]}]', $1::bigint)::jsonb)`, own))
	require.Equal(t, 3, query[int](t, owner, "select count(*)::int from jobq.job where metadata = '{\"added_by\": \"my_web\"}'"))
}

// roles.sql stops at the first problem, says with its exit code that there was one, and what to do about it.
func TestRolesStopAtTheFirstProblem(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	psql, err := exec.LookPath("psql")
	if err != nil {
		pgtest.Missing(t, "psql", "apt-get install postgresql-client")
		return
	}
	ownerURL := pgtest.OwnServer(t).URL("postgres")
	owner := pgtest.Connect(t, ownerURL)
	roles := func(user, file string) (string, int) {
		t.Helper()
		command := exec.Command(psql, "-X", regexp.MustCompile(`//[^@/]*@?`).ReplaceAllString(ownerURL, "//"+user+"@"), "-f", file)
		said, _ := command.CombinedOutput()
		return string(said), command.ProcessState.ExitCode()
	}
	refused := func(user string, want ...string) {
		t.Helper()
		said, code := roles(user, "../../sql/roles.sql")
		require.Equal(t, 3, code, said)
		require.Equal(t, 1, strings.Count(said, "ERROR:"), said)
		for _, text := range want {
			require.Contains(t, said, text)
		}
	}
	superuser := query[string](t, owner, "select current_user::text")
	refused(superuser, `there are no tables in schema jobq`, "migrate up")
	_, err = owner.Exec(ctx, "create role app login; create role stranger login createrole; grant create on database postgres to app")
	require.NoError(t, err)
	require.NoError(t, pgtest.Migrate(ctx, regexp.MustCompile(`//[^@/]*@?`).ReplaceAllString(ownerURL, "//app@"), "jobq"))
	refused("app", "role app may not make roles, and these are missing: jobq_producer, jobq_web, jobq_runner, jobq_worker, jobq_viewer, jobq_admin", "alter role app createrole")
	require.False(t, query[bool](t, owner, "select exists (select from pg_roles where rolname like 'jobq%')"))
	refused("stranger", "role stranger does not own schema jobq", "run this file as app")
	said, code := roles(superuser, "../../sql/roles.sql")
	require.Zero(t, code, said)
	said, code = roles("app", "../../sql/roles.sql")
	require.Zero(t, code, "the roles are there now: the owner needs no more to grant them what is new\n"+said)

	require.NoError(t, pgtest.Migrate(ctx, ownerURL, "my-jobs"))
	content, err := os.ReadFile("../../sql/roles.sql")
	require.NoError(t, err)
	other := t.TempDir() + "/roles.sql"
	require.NoError(t, os.WriteFile(other, []byte(regexp.MustCompile(`\bjobq\b`).ReplaceAllString(string(content), `"my-jobs"`)), 0o600))
	said, code = roles(superuser, other)
	require.Zero(t, code, said)
	said, code = roles("stranger", other)
	require.Equal(t, 3, code, said)
	require.Contains(t, said, `role stranger does not own schema "my-jobs"`)
}
