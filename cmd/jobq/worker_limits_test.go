package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/config"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A worker that starts makes the limits of queues what its file says, and leaves those alone
// that it does not name. What is set is in the audit; what is so already is not set again.
func TestLimitsOfConfigFile(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	path := filepath.Join(t.TempDir(), "jobq.yaml")
	work := func(content string, more ...string) (log string, code int) {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, log, code = invoke(t, "", append([]string{"worker", "--database-url", url, "--config", path, "--run", "none=true", "--exit-when-empty", "--janitor", "off"}, more...)...)
		return log, code
	}
	stored := func() string {
		return query[string](t, pool, `select coalesce(string_agg(concat_ws(' ', name, max_running, key_limit, key_order, key_separator, rate_jobs, rate_period, rate_burst, 'k' || key_rate_jobs, key_rate_period, key_rate_burst, nullif(age_after, jobq.age_after_default()), retention, failed_retention), ', ' order by name), '') from jobq.queue`)
	}
	audited := func() int {
		return query[int](t, pool, "select count(*)::integer from jobq.audit where action = 'settings'")
	}
	for _, step := range []struct {
		queues, stored string
		audited        int
	}{
		{"{a: 2, b: {slots: 1}}", "", 0},
		{"{a: {limit: 3, rate: 100/s, burst: 20}, b: 1, c: {rate: 5/m}}", "a 3 100 00:00:01 20, c 5 00:01:00", 2},
		{"{a: {limit: 3, rate: 100/s}, c: {rate: 5/m}}", "a 3 100 00:00:01 20, c 5 00:01:00", 2},
		{"{a: {limit: 4}, c: 1}", "a 4 100 00:00:01 20, c 5 00:01:00", 3},
		{"{a: {rate: 200/s, limit: none}}", "a 200 00:00:01, c 5 00:01:00", 4},
		{"{a: {rate: none, limit: none}, c: {limit: none}}", "a, c 5 00:01:00", 5},
		{"{a: {key_limit: 2}, c: {key_order: hold}}", "a 2, c 1 hold 5 00:01:00", 7},
		{"{a: {key_limit: 2}, c: {key_order: hold, key_limit: 1}}", "a 2, c 1 hold 5 00:01:00", 7},
		{"{a: {key_limit: none}, c: {key_limit: none, key_order: none}}", "a, c 5 00:01:00", 9},
		{"{a: {age_after: 10m}, d: {age_after: none}, e: {age_after: 5m}}", "a 00:10:00, c 5 00:01:00, d 00:00:00", 11},
		{"{a: {age_after: 10m, slots: 1}, d: 1}", "a 00:10:00, c 5 00:01:00, d 00:00:00", 11},
		{"{a: {age_after: 5m}, d: {age_after: none}}", "a, c 5 00:01:00, d 00:00:00", 12},
		{"{a: {key_rate: 5/s, key_rate_burst: 2}, c: {key_rate: none}}", "a k5 00:00:01 2, c 5 00:01:00, d 00:00:00", 13},
		{"{a: {key_rate: 5/s}}", "a k5 00:00:01 2, c 5 00:01:00, d 00:00:00", 13},
		{"{a: {key_rate: none}}", "a, c 5 00:01:00, d 00:00:00", 14},
		{"{a: {retention: 90d, failed_retention: 52w}, d: {retention: none}}", "a 90 days 364 days, c 5 00:01:00, d 00:00:00", 15},
		{"{a: {retention: 2160h, slots: 1}}", "a 90 days 364 days, c 5 00:01:00, d 00:00:00", 15},
		{"{a: {retention: none, failed_retention: none}}", "a, c 5 00:01:00, d 00:00:00", 16},
		{"{a: {key_separator: /}, c: {key_separator: none}}", "a /, c 5 00:01:00, d 00:00:00", 17},
		{"{a: {key_separator: /, slots: 1}}", "a /, c 5 00:01:00, d 00:00:00", 17},
		{"{a: 1}", "a /, c 5 00:01:00, d 00:00:00", 17},
		{"{a: {key_separator: none}}", "a, c 5 00:01:00, d 00:00:00", 18},
	} {
		log, code := work("queues: " + step.queues + "\n")
		require.Zero(t, code, log)
		require.Equal(t, step.stored, stored(), step.queues)
		require.Equal(t, step.audited, audited(), step.queues)
	}
	log, code := work("queues: {a: {limit: 7}, c: {rate: 9/s}}\n", "--queue", "b")
	require.Zero(t, code, log)
	require.Equal(t, "a, c 5 00:01:00, d 00:00:00", stored(), "the worker does not claim from these")
	log, code = work("poll: 1s\nqueues:\n  a: 1\n  c: {limit: 2000000}\n")
	require.Equal(t, exitUsage, code, log)
	require.Contains(t, log, path+": line 4: queues: c: ")
	require.Contains(t, log, "max_running must be 1 to 1000000")
	log, code = work("queues: {a: 1, c: {age_after: 40d}}\n")
	require.Equal(t, exitUsage, code, log)
	require.Contains(t, log, path+": line 1: queues: c: ")
	require.Contains(t, log, "age_after must be 0 to 30 days")
	log, code = work("queues:\n  c: {limit: -1}\n")
	require.Equal(t, exitUsage, code, log)
	require.Contains(t, log, "line 2: limit: must be a number of at least 1")
	log, code = work("queues:\n  c: {key_separator: 123456789}\n")
	require.Equal(t, exitUsage, code, log)
	require.Contains(t, log, "line 2: key_separator: must be 1 to 8 characters, or none, not \"123456789\"")
	require.Equal(t, 18, audited())
}

// A worker sets limits once the database answers, as it waits for it without them.
func TestLimitsWhenDatabaseIsBack(t *testing.T) {
	t.Parallel()
	proxy := pgtest.StartProxy(t, pgtest.URL(t))
	proxy.Refuse(true)
	file, err := config.Parse([]byte("queues: {a: {limit: 3}}"))
	require.NoError(t, err)
	a := &app{databaseURL: proxy.URL, schema: "jobq"}
	client, err := a.uncheckedClient(t.Context())
	require.NoError(t, err)
	defer client.Pool().Close()
	var log back
	log.heal = func() { proxy.Refuse(false) }
	require.NoError(t, a.setLimitsAtStart(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), client, file, map[string]int{"a": 1}))
	require.Contains(t, log.String(), `level=WARN msg="settings of the config file cannot be set yet, trying on"`)
	require.Contains(t, log.String(), `msg="limits of the config file are set" queue=a audit_id=1`)
}

// A worker with the role of workers starts with a file whose limits are stored already;
// when something is to be set, the error says who can.
func TestLimitsAsWorkerRole(t *testing.T) {
	t.Parallel()
	_, as := rolesServer(t)
	path := filepath.Join(t.TempDir(), "jobq.yaml")
	require.NoError(t, os.WriteFile(path, []byte("queues: {a: {limit: 3, rate: 5/m, key_separator: /}}"), 0o600))
	work := func(args ...string) (string, int) {
		_, stderr, code := invoke(t, "", append([]string{
			"worker", "--database-url", as("worker"), "--config", path, "--run", "none=true", "--exit-when-empty", "--janitor", "off",
		}, args...)...)
		return stderr, code
	}
	stderr, code := work()
	require.Equal(t, exitError, code, stderr)
	require.Contains(t, stderr, path+": line 1: queues: a: ")
	require.Contains(t, stderr, `the login needs the role jobq_admin (sql/roles.sql): set it with "jobq queues set", or leave limits out of the workers' file`)
	_, stderr, code = invoke(t, "", "queues", "set", "a", "limit=3", "rate=5/m", "key_separator=/", "--database-url", as("admin"))
	require.Zero(t, code, stderr)
	stderr, code = work()
	require.Zero(t, code, stderr)
	stderr, code = work("--lease", "70s")
	require.Equal(t, exitError, code, stderr)
	require.Contains(t, stderr, `set queue "a"`)
	require.Contains(t, stderr, "the login needs the role jobq_admin")
	_, stderr, code = invoke(t, "", "queues", "set", "a", "lease=70s", "--database-url", as("admin"))
	require.Zero(t, code, stderr)
	stderr, code = work("--lease", "70s")
	require.Zero(t, code, stderr)
}

// A worker makes the weights of partition keys what its file says when it starts, and writes only those that differ. Keys that the
// file does not name keep theirs.
func TestWeightsOfTheConfigFile(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	path := filepath.Join(t.TempDir(), "jobq.yaml")
	for _, step := range []struct {
		queues, stored string
		audited        int
	}{
		{"{a: {key_weights: {x: 3, y z: 2, one: 1}}}", "a x 3, a y z 2", 2},
		{"{a: {key_weights: {x: 3, y z: 2}}}", "a x 3, a y z 2", 2},
		{"{a: {key_weights: {x: 4}}, b: {key_weights: {x: 5}, limit: 3}}", "a x 4, a y z 2, b x 5", 4},
		{"{a: {key_weights: {x: 1}}, b: 1}", "a y z 2, b x 5", 5},
	} {
		require.NoError(t, os.WriteFile(path, []byte("queues: "+step.queues+"\n"), 0o600))
		_, log, code := invoke(t, "", "worker", "--database-url", url, "--config", path, "--run", "none=true", "--exit-when-empty", "--janitor", "off")
		require.Zero(t, code, log)
		require.Equal(t, step.stored, query[string](t, pool, "select string_agg(concat_ws(' ', queue, key, weight), ', ' order by queue, key) from jobq.key_weight"), step.queues)
		require.Equal(t, step.audited, query[int](t, pool, "select count(*)::integer from jobq.audit where action = 'key_weight'"), step.queues)
	}
}
