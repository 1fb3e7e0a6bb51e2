package main

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Programs that connect as a runner end their jobs themselves, by the flag and by the
// file, and have no other way to success. They are given no address that was not meant for them.
func TestWorkerEndsItself(t *testing.T) {
	t.Parallel()
	owner, as := rolesServer(t)
	_, err := owner.Exec(context.Background(), "create table public.effect (job bigint); grant insert on public.effect to jobq_runner")
	require.NoError(t, err)
	file := t.TempDir() + "/jobq.yaml"
	require.NoError(t, os.WriteFile(file, []byte(`
kinds:
  pays: &pays
    command:
    - sh
    - -c
    - |
      echo "begin; insert into public.effect values (:id); select jobq.complete(:id, :'token', to_jsonb(current_user)); commit;" |
        psql "$DATABASE_URL" -qAtX -v ON_ERROR_STOP=1 -v id="$JOBQ_JOB_ID" -v token="$JOBQ_RUN_TOKEN"
    env: {DATABASE_URL: "`+as("runner")+`"}
    ends_itself: true
  pays-by-flag:
    <<: *pays
    ends_itself: false
  forgets: {command: "true"}
  has-none: {command: [sh, -c, 'test -z "$DATABASE_URL$JOBQ_DATABASE_URL$JOBQ_RUN_TOKEN"']}
`), 0o600))
	jobs := make(map[string]int64)
	for _, kind := range []string{"pays", "pays-by-flag", "forgets", "has-none"} {
		jobs[kind] = query[int64](t, owner, "select jobq.enqueue($1, max_attempts => 1)", kind)
	}
	_, stderr, code := invoke(t, "", "worker", "--database-url", as("worker"), "--config", file, "--ends-itself", "pays-by-flag", "--ends-itself", "forgets", "--exit-when-empty")
	require.Zero(t, code, stderr)
	for _, kind := range []string{"pays", "pays-by-flag"} {
		require.Equal(t, `completed "my_runner" 1`, query[string](t, owner, `select format('%s %s %s', state, result, (select count(*) from public.effect e where e.job = j.id)) from jobq.job j where id = $1`, jobs[kind]), kind)
	}
	require.Contains(t, query[string](t, owner, "select state || ' ' || last_error from jobq.job where id = $1", jobs["forgets"]), "failed the handler reported success, and no transaction of its own has ended the job")
	require.Equal(t, "completed", query[string](t, owner, "select state::text from jobq.job where id = $1", jobs["has-none"]))
}
