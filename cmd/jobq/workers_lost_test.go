package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An operator says that a host is lost, whose worker lives all the same: its job goes back to the queue without an attempt, its
// program is ended, and it drains. The name of the host stands for its workers.
func TestWorkersLost(t *testing.T) {
	t.Parallel()
	p := newProfile(t)
	victim := p.worker("--drain-timeout", "1ms")
	id := p.enqueue(", max_attempts => 1")
	p.begun(id, 1)
	worker := query[string](t, p.pool, "select id from jobq.worker")
	host, err := os.Hostname()
	require.NoError(t, err)
	command := func(want int, args ...string) string {
		out, stderr, code := invoke(t, "", append(args, "--database-url", p.url)...)
		require.Equal(t, want, code, out+stderr)
		return out + stderr
	}
	require.Contains(t, command(exitUsage, "workers", "lost", host), "give --yes")
	require.Contains(t, command(exitNotFound, "workers", "lost", "nobody", "--yes"), "no such worker")
	require.Contains(t, command(exitOK, "workers", "lost", host, "--reason", "preempted", "--yes"), "worker "+worker+": 1 job goes back to the queue, without an attempt")
	victim.awaitLog(t, "lease lost")
	require.NoError(t, victim.Wait(), "it drains")
	eventually(t, p.pool, "available 0", "select concat_ws(' ', state, attempts) from jobq.job where id = $1", id)
	require.Regexp(t, "^worker .* is lost, says .*: preempted$", query[string](t, p.pool, "select error from jobq.attempt where job_id = $1", id))
	require.Contains(t, command(exitOK, "audit"), "lost")
	require.Contains(t, command(exitConflict, "undo", "1"), "may run elsewhere")
}

// A host's name stands for all its workers, and an id for the one that has it, also where a host is called so.
func TestWorkersOfAHost(t *testing.T) {
	t.Parallel()
	p := newProfile(t)
	_, err := p.pool.Exec(t.Context(), `insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots)
		select x.id, 1, x.host, '', '{}', '{}', '{}' from (values ('a-1', 'a'), ('a-2', 'a'), ('b-1', 'b'), ('c', 'c'), ('c-2', 'c')) x(id, host)`)
	require.NoError(t, err)
	drained := func(names ...string) (ids, notes string) {
		out, stderr, code := invoke(t, "", append([]string{"workers", "drain", "--database-url", p.url}, names...)...)
		require.Zero(t, code, stderr)
		return strings.ReplaceAll(strings.ReplaceAll(out, "worker ", ""), " was asked to drain\n", " "), stderr
	}
	ids, _ := drained("a", "a-2", "b-1")
	require.Equal(t, "a-1 a-2 b-1 ", ids)
	ids, notes := drained("c")
	require.Equal(t, "c ", ids)
	require.Contains(t, notes, "not for the host")
	out, stderr, code := invoke(t, "", "workers", "lost", "c", "c-2", "--yes", "--json", "--database-url", p.url)
	require.Zero(t, code, stderr)
	require.JSONEq(t, `[{"worker": "c", "jobs": 0}, {"worker": "c-2", "jobs": 0, "audit_id": 5}]`, out)
}
