package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// All jobs of a sweep come as CSV, with members of args and result, over many pages and in each state.
func TestListColumns(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	const count = 2*csvValuesPage + 5
	list := func(args ...string) (stdout, stderr string, code int) {
		return invoke(t, "", append([]string{"list", "tag:sweep1", "--database-url", url}, args...)...)
	}
	var table strings.Builder
	table.WriteString("dt,label\n")
	for n := range count {
		fmt.Fprintf(&table, "0.%d0,=%d\n", n, n)
	}
	_, stderr, code := invoke(t, table.String(), "enqueue", "simulate", "--csv", "-", "--tag", "sweep1", "--database-url", url)
	require.Zero(t, code, stderr)
	startProcess(t, "worker", "--database-url", url, "--run", `simulate=sh -c 'echo "{\"result\": {\"loss\": 0.50, \"id\": $JOBQ_JOB_ID}}" >&3'`)
	eventually(t, pool, count, "select count(*)::int from jobq.job where state = 'completed'")
	_, _, code = invoke(t, "dt\n7\n", "enqueue", "other", "--csv", "-", "--tag", "sweep1", "--database-url", url)
	require.Zero(t, code)

	stdout, stderr, code := list("-o", "csv", "--reverse", "--columns", "id,state,args.dt,args.label,result.loss,result.id,args.none")
	require.Zero(t, code, stderr)
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+count+1)
	require.Equal(t, []string{"id", "state", "args.dt", "args.label", "result.loss", "result.id", "args.none"}, rows[0])
	for n, row := range rows[1 : count+1] {
		id := strconv.Itoa(n + 1)
		require.Equal(t, []string{id, "completed", fmt.Sprintf("0.%d0", n), fmt.Sprintf("=%d", n), "0.50", id, ""}, row)
	}
	require.Equal(t, []string{strconv.Itoa(count + 1), "available", "7", "", "", "", ""}, rows[count+1])

	stdout, stderr, code = list("-o", "csv")
	require.Zero(t, code, stderr)
	require.Equal(t, 1+count+1, strings.Count(stdout, "\n"), "not a page alone")
	stdout, stderr, code = list("-o", "csv", "--columns", "id,result", "--limit", strconv.Itoa(csvValuesPage+1))
	require.Zero(t, code, stderr)
	require.Equal(t, 1+csvValuesPage+1, strings.Count(stdout, "\n"))
	require.Contains(t, stderr, fmt.Sprintf("more: --after %d\n", count+1-csvValuesPage))
	stdout, _, _ = list("--columns", "id,args.dt", "--limit", "2")
	require.Equal(t, fmt.Sprintf("id   args.dt\n%d  7\n%d  0.%d0\n", count+1, count, count-1), stdout)

	for want, args := range map[string][]string{
		`--columns: no column "arg.dt": the columns are id, state, queue,`: {"-o", "csv", "--columns", "id,arg.dt"},
		"--columns is for a table or -o csv":                               {"-o", "jsonl", "--columns", "id"},
		"--limit must be 1 to 1000, not 0":                                 {"-o", "csv", "--limit", "0"},
	} {
		_, stderr, code := list(args...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, stderr, want)
	}
}

// Encrypted args are as they are stored, and with keys plain.
func TestListColumnsWithKeys(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	keys, _, code := invoke(t, "", "keygen")
	require.Zero(t, code)
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte(keys), 0o600))
	_, stderr, code := invoke(t, "dt\n0.10\n", "enqueue", "simulate", "--csv", "-", "--keys-file", file, "--database-url", url)
	require.Zero(t, code, stderr)
	stdout, stderr, code := invoke(t, "", "list", "-o", "csv", "--columns", "id,args.dt", "--database-url", url)
	require.Zero(t, code)
	require.Equal(t, "id,args.dt\n1,\n", stdout)
	require.Contains(t, stderr, "warning: args or results of 1 job are encrypted: --keys-file decrypts them")
	stdout, stderr, code = invoke(t, "", "list", "-o", "csv", "--columns", "id,args.dt", "--keys-file", file, "--database-url", url)
	require.Zero(t, code)
	require.Equal(t, "id,args.dt\n1,0.10\n", stdout)
	require.Empty(t, stderr)
}
