package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/operator"
)

// An admin requeues a job with those that were cancelled with it. The answer counts these, names one
// that stays cancelled, and says how to take it back. why says to do so.
func TestRequeueWithDependents(t *testing.T) {
	t.Parallel()
	owner, as := rolesServer(t)
	enqueue := func(after ...int64) int64 {
		return query[int64](t, owner, "select jobq.enqueue('k', after => $1)", after)
	}
	settle := func() {
		_, err := owner.Exec(context.Background(), "select jobq.dependency_step('-infinity', 500) from generate_series(1, 3)")
		require.NoError(t, err)
	}
	first, second := enqueue(), enqueue()
	child, both := enqueue(first), enqueue(first, second)
	query[string](t, owner, "select jobq.cancel($1)::text", first)
	query[string](t, owner, "select jobq.cancel($1)::text", second)
	settle()
	id := strconv.FormatInt(first, 10)
	out, stderr, code := invoke(t, "", "why", "--database-url", as("viewer"), strconv.FormatInt(child, 10))
	require.Zero(t, code, stderr)
	require.Contains(t, out, "job "+id+", for which it waited, was cancelled")
	require.Contains(t, out, "jobq requeue "+id+" --with-dependents")

	requeue := func(args ...string) (out, stderr string, code int) {
		return invoke(t, "", append([]string{"requeue", "--database-url", as("admin"), "--with-dependents"}, args...)...)
	}
	for _, wrong := range [][]string{{}, {"--filter", "id:>0"}, {id, "--dry-run"}, {id, "--from-step", "a"}} {
		_, stderr, code = requeue(wrong...)
		require.Equal(t, exitUsage, code, stderr)
	}
	out, stderr, code = requeue(id)
	require.Zero(t, code, stderr)
	audit := query[int64](t, owner, "select max(id) from jobq.audit")
	require.Equal(t, fmt.Sprintf("%s available\n1 dependent made to wait again; take it back with: jobq undo %d\n", id, audit), out)
	require.Equal(t, fmt.Sprintf("job %d stays cancelled: it also waits for job %d, which was cancelled: requeue that with it\n", both, second), stderr)
	require.Equal(t, "waiting cancelled", query[string](t, owner, "select string_agg(state::text, ' ' order by id) from jobq.job where id >= $1", child))

	out, stderr, code = requeue(id, strconv.FormatInt(second, 10), "--json")
	require.Zero(t, code, stderr)
	var acted operator.Acted
	require.NoError(t, json.Unmarshal([]byte(out), &acted))
	require.Equal(t, &operator.ActedDependents{Requeued: 1}, acted.Dependents)
	_, stderr, code = invoke(t, "", "undo", "--database-url", as("admin"), strconv.FormatInt(acted.AuditID, 10))
	require.Zero(t, code, stderr)
	_, _, code = requeue("999999")
	require.Equal(t, exitNotFound, code)
}
