package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Members of --set are JSON where they are JSON, and texts else.
func TestSetFlag(t *testing.T) {
	t.Parallel()
	var set setFlag
	require.Nil(t, set.patch())
	for _, text := range []string{"args.dt=0.010", "args.big=12345678901234567890", "args.id=\"7\"", "args.zip=007", "args.none=null", "args.m.depth=3", "args.m.w=[1]", "args.eq=a=b", "args.empty=", "args.dt=0.020"} {
		require.NoError(t, set.Set(text), text)
	}
	require.Equal(t, `{"big":12345678901234567890,"dt":0.020,"empty":"","eq":"a=b","id":"7","m":{"depth":3,"w":[1]},"none":null,"zip":"007"}`, string(set.patch()))
	for text, want := range map[string]string{
		"dt=1": "must be args.NAME=VALUE", "args.dt": "must be args.NAME=VALUE", "args.=1": "a name is empty", "args.m..x=1": "a name is empty",
		"args.m=1": "args.m is set, and members of it", "args.dt.x=1": "args.dt is set, and members of it",
	} {
		require.ErrorContains(t, set.Set(text), want, text)
	}
}

// The failed jobs of a sweep run again with other args, all at once or one.
func TestRequeueWithArgs(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	keys, _, code := invoke(t, "", "keygen")
	require.Zero(t, code)
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte(keys), 0o600))
	command := func(want int, input string, args ...string) string {
		t.Helper()
		stdout, stderr, code := invoke(t, input, append(args, "--database-url", url)...)
		require.Equal(t, want, code, "%v: %s", args, stderr)
		return stdout + stderr
	}
	args := func(id int) string {
		return query[string](t, pool, "select args::text from jobq.job where id = $1", id)
	}
	command(exitOK, "dt,label\n0.1,a\n0.2,b\n0.3,c\n", "enqueue", "simulate", "--csv", "-", "--tag", "sweep1", "--max-attempts", "1")
	worker := startProcess(t, "worker", "--database-url", url, "--run", "simulate=false")
	eventually(t, pool, 3, "select count(*)::int from jobq.job where state = 'failed'")
	require.NoError(t, worker.Process.Signal(os.Interrupt))
	require.NoError(t, worker.Wait())

	said := command(exitOK, "", "requeue", "--filter", "state:failed tag:sweep1", "--set", "args.dt=0.010", "--set", "args.note=again", "--yes")
	require.Contains(t, said, "requeue: 3 jobs, 0 refused; take it back with: jobq undo 1")
	require.JSONEq(t, `{"dt": 0.010, "label": "b", "note": "again"}`, args(2))
	require.Equal(t, 3, query[int](t, pool, "select count(*)::int from jobq.job where state = 'available'"))
	require.Contains(t, command(exitOK, "", "audit"), `state:failed tag:sweep1 {"args_patch":{"dt":0.010,`)
	command(exitOK, "", "undo", "1")
	require.JSONEq(t, `{"dt": 0.1, "label": "a"}`, args(1))
	require.Equal(t, 3, query[int](t, pool, "select count(*)::int from jobq.job where state = 'failed'"))

	command(exitOK, `{"dt": 5}`, "requeue", "1", "2", "--args", "-")
	require.JSONEq(t, `{"dt": 5}`, args(2))
	command(exitOK, "", "edit", "1", "--set", "args.dt=null", "--set", "args.m.depth=3")
	require.JSONEq(t, `{"m": {"depth": 3}}`, args(1))
	require.Equal(t, "4\n", command(exitOK, "", "clone", "1", "--set", "args.m.width=4"))
	require.JSONEq(t, `{"m": {"depth": 3, "width": 4}}`, args(4))

	command(exitOK, "", "requeue", "3", "--args", `{"dt": 7}`, "--keys-file", file)
	require.Contains(t, args(3), `"$jobq": "enc"`)
	require.Contains(t, command(exitConflict, "", "requeue", "3", "--set", "args.dt=8"), "its args are encrypted with key")
	require.Contains(t, command(exitUsage, "", "requeue", "3", "--args", `{"dt": 8}`), "give --keys-file")
	for want, args := range map[string]string{
		"give --args or --set, and not both":                       "requeue 1 --args {} --set args.x=1",
		"args of one job at a time can be encrypted":               "requeue 1 2 --args {} --keys-file " + file,
		"a job with other args does all its steps again":           "requeue 1 --from-step x --set args.x=1",
		"--set \"dt=1\": must be args.NAME=VALUE, such as args.dt": "requeue 1 --set dt=1",
		"--args: not JSON": "requeue 1 --args {",
	} {
		require.Contains(t, command(exitUsage, "", strings.Fields(args)...), want)
	}
}
