package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/config"
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
  sync: {every: 30s, kind: sync, overlap: skip, tags: [a, b], partition_key: customer-17}
`)
	log := work()
	require.Contains(t, log, `msg="schedules set" app=billing schedules="[report sync]"`)
	require.Contains(t, log, `level=WARN msg="schedules left alone, since somebody else has made schedules of these names" app=billing schedules=[hand]`)
	require.Equal(t, `{"text": "8", "weeks": [1, null]}`, query[string](t, pool, "select args::text from jobq.schedule where name = 'report'"))
	require.Equal(t, "billing, version 2", query[string](t, pool, "select source from jobq.schedule where name = 'report' and catch_up_within = '2 days' and time_zone = 'Europe/Berlin'"))
	require.Equal(t, "customer-17", query[string](t, pool, "select partition_key from jobq.schedule where name = 'sync'"))
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
		"schedules_version: 3\nschedules: {a: {every: 1h, kind: k, overlap: no}}": path + `: line 3: schedules: a: set schedule "a": invalid value: overlap must be allow or skip`,
		"schedules_version: -2\nschedules: {}\n":                                  "line 2: schedules_version must be 0 or more, not -2",
		"schedules:\n  a: {every: 1h, kind: k, args: {1: 2}}\n":                   "line 3: JSON has only texts as keys",
		"schedules:\n  a: {every: 1h, kind: k, args: [.inf]}\n":                   "line 3: \".inf\" is not a number as JSON writes it",
	} {
		write(content)
		_, stderr, code := invoke(t, "", "schedules", "apply", "--database-url", url, "--config", path)
		require.Equal(t, exitUsage, code, stderr)
		require.Contains(t, stderr, want)
	}
}

// A schedule that is declared and then set by hand is no longer the file's: the command
// says so, and the undo it names gives it back.
func TestSetDeclaredSchedule(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	path := filepath.Join(t.TempDir(), "jobq.yaml")
	require.NoError(t, os.WriteFile(path, []byte("app: billing\nschedules: {sync: {every: 1h, kind: sync}}\n"), 0o600))
	command := func(args ...string) (out, stderr string) {
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Zero(t, code, stderr)
		return out, stderr
	}
	apply := func() string { out, _ := command("schedules", "apply", "--config", path); return out }
	require.Equal(t, "set: sync\n", apply())
	add := []string{"schedules", "add", "sync", "--every", "2h", "--kind", "sync", "--json"}
	_, stderr := command(add...)
	require.Equal(t, "note: it was declared by billing, which leaves it alone from now on; to give it back: jobq undo 2\n", stderr)
	_, stderr = command(add...)
	require.Empty(t, stderr)
	require.Contains(t, apply(), "left alone")
	command("undo", "2")
	require.Equal(t, "all schedules are so already\n", apply())
}

// A worker applies schedules once the database answers, as it waits for it without them.
func TestDeclareWhenDatabaseIsBack(t *testing.T) {
	t.Parallel()
	proxy := pgtest.StartProxy(t, pgtest.URL(t))
	proxy.Refuse(true)
	path := filepath.Join(t.TempDir(), "jobq.yaml")
	require.NoError(t, os.WriteFile(path, []byte("app: billing\nschedules: {sync: {every: 1h, kind: sync}}\n"), 0o600))
	file, err := config.Load(path)
	require.NoError(t, err)
	a := &app{databaseURL: proxy.URL, schema: "jobq"}
	client, err := a.uncheckedClient(t.Context())
	require.NoError(t, err)
	defer client.Pool().Close()
	var log back
	log.heal = func() { proxy.Refuse(false) }
	require.NoError(t, a.declareAtStart(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), client, file))
	require.Contains(t, log.String(), `level=WARN msg="schedules of the config file cannot be applied yet, trying on"`)
	require.Contains(t, log.String(), `msg="schedules set" app=billing schedules=[sync]`)
}

// back is a log: once something is in it, the database comes back.
type back struct {
	strings.Builder
	heal func()
}

func (b *back) Write(line []byte) (int, error) {
	b.heal()
	return b.Builder.Write(line)
}

// A worker with the role of workers starts with a file whose schedules are there already;
// when something is to be changed, the error says who can.
func TestDeclareAsWorkerRole(t *testing.T) {
	t.Parallel()
	_, as := rolesServer(t)
	path := filepath.Join(t.TempDir(), "jobq.yaml")
	write := func(every string) {
		require.NoError(t, os.WriteFile(path, []byte("app: billing\nschedules: {sync: {every: "+every+", kind: sync}}\n"), 0o600))
	}
	write("1h")
	_, stderr, code := invoke(t, "", "schedules", "apply", "--database-url", as("admin"), "--config", path)
	require.Zero(t, code, stderr)
	work := func() (string, int) {
		_, stderr, code := invoke(t, "", "worker", "--database-url", as("worker"), "--config", path, "--run", "none=true", "--exit-when-empty", "--janitor", "off")
		return stderr, code
	}
	stderr, code = work()
	require.Zero(t, code, stderr)
	write("2h")
	stderr, code = work()
	require.Equal(t, exitError, code, stderr)
	require.Contains(t, stderr, `the login needs the role jobq_admin (sql/roles.sql): let "jobq schedules apply" do it, and leave schedules out of the workers' file`)
}
