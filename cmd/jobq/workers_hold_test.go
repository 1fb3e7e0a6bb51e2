package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// An operator holds a host: its worker process runs nothing until the host is released, and jobq workers, why and the audit say
// so. A name that no worker has is held too, and told.
func TestWorkersHold(t *testing.T) {
	t.Parallel()
	p := newProfile(t)
	host, err := os.Hostname()
	require.NoError(t, err)
	command := func(args ...string) string {
		out, stderr, code := invoke(t, "", append(args, "--database-url", p.url)...)
		require.Equal(t, exitOK, code, out+stderr)
		return out + stderr
	}
	require.Equal(t, "host "+host+" is held (it has no worker now, and later ones are held); take it back with: jobq undo 1\n", command("workers", "hold", host, "--reason", "bad disk"))
	p.worker()
	eventually(t, p.pool, "1", "select count(*)::text from jobq.worker")
	id := p.enqueue("")
	require.Regexp(t, ` \(held\)(.|\n)*note: host `+host+" is held by .* ago: bad disk", command("workers"))
	require.Contains(t, command("workers", "--json"), `"reason": "bad disk"`)
	require.Regexp(t, "its workers are held, 1 in all: host "+host+" by .*: bad disk, for ", command("why", "1"))
	require.Contains(t, command("why", "1"), "jobq workers release "+host)
	require.Equal(t, "host "+host+" is already held (1 worker)\n", command("workers", "hold", host))
	require.Contains(t, command("audit"), "host_hold")
	require.Equal(t, "host "+host+" is released (1 worker); take it back with: jobq undo 2\n", command("workers", "release", host))
	p.begun(id, 1)
	require.Equal(t, "host "+host+" is not held (1 worker)\n", command("workers", "release", host))
	require.JSONEq(t, `{"host": "elsewhere", "audit_id": 3, "workers": 0}`, command("workers", "hold", "elsewhere", "--json"))
}
