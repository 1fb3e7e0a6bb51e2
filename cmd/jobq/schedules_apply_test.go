package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A worker that starts makes schedules what its file declares, the command does the same,
// and both say what they have left alone. What is wrong in the file is said with its line.
func TestDeclaredSchedules(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	path := filepath.Join(t.TempDir(), "jobq.yaml")
	write := func(content string) { require.NoError(t, os.WriteFile(path, []byte("app: billing\n"+content), 0o600)) }
	work := func() string {
		_, stderr, code := invoke(t, "", "worker", "--database-url", url, "--config", path, "--run", "none=true", "--exit-when-empty", "--janitor", "off")
		require.Zero(t, code, stderr)
		return stderr
	}
	apply := func(more ...string) string {
		out, stderr, code := invoke(t, "", append([]string{"schedules", "apply", "--database-url", url, "--config", path}, more...)...)
		require.Zero(t, code, stderr)
		return out
	}
	_, stderr, code := invoke(t, "", "schedules", "add", "hand", "--every", "1h", "--kind", "hand", "--database-url", url)
	require.Zero(t, code, stderr)
	write(`schedules_version: 2
schedules:
  hand: {every: 1h, kind: other}
  report:
    cron: 0 9 * * mon
    time_zone: Europe/Berlin
    kind: report
    args: {weeks: [1, null], text: "8"}
    metadata: {a: 1}
    catch_up_within: 2d
  sync: {every: 30s, kind: sync, overlap: skip, tags: [a, b]}
`)
	log := work()
	require.Contains(t, log, `msg="schedules set" app=billing schedules="[report sync]"`)
	require.Contains(t, log, `msg="schedules left alone, since somebody else has made schedules of these names" app=billing schedules=[hand]`)
	require.Equal(t, `{"text": "8", "weeks": [1, null]}`, query[string](t, pool, "select args::text from jobq.schedule where name = 'report'"))
	require.Equal(t, "billing, version 2", query[string](t, pool, "select source from jobq.schedule where name = 'report' and catch_up_within = '2 days' and time_zone = 'Europe/Berlin'"))
	require.Equal(t, "hand", query[string](t, pool, "select kind from jobq.schedule where name = 'hand'"))
	require.Equal(t, "left alone, since somebody else has made schedules of these names: hand\n", apply())

	write("schedules_version: 3\nschedules: {sync: {every: 30s, kind: sync, overlap: skip, tags: [a, b]}}\n")
	require.JSONEq(t, `{"changed": ["sync"], "enabled": [], "disabled": ["report"], "refused": []}`, apply("--json"))
	require.Equal(t, "declared no more by billing, version 3", query[string](t, pool, "select pause_reason from jobq.schedule where name = 'report'"))
	require.Equal(t, "all schedules are so already\n", apply())
	write("schedules_version: 2\nschedules: {}\n")
	require.Contains(t, work(), "schedules of the config file are not applied: a newer version is there")
	require.Equal(t, "nothing is changed: version 3 is there, which is newer\n", apply())

	write("queues: {default: 1}\n")
	require.NotContains(t, work(), "schedules", "it declares none")
	require.Equal(t, 1, query[int](t, pool, "select count(*)::int from jobq.schedule where paused_at is not null"))
	for content, want := range map[string]string{
		"queues: {default: 1}\n":                                                  "declares no schedules",
		"schedules:\n  a: {every: 1h, kind: k}\n  b: {every: 1h}":                 "line 4: schedules: b: kind is missing",
		"schedules_version: 3\nschedules: {a: {every: 1h, kind: k, overlap: no}}": "overlap must be allow or skip",
	} {
		write(content)
		_, stderr, code := invoke(t, "", "schedules", "apply", "--database-url", url, "--config", path)
		require.Equal(t, exitUsage, code, stderr)
		require.Contains(t, stderr, want)
	}
}
