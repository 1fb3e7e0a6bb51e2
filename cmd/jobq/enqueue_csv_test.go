package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The columns become args: numbers keep their digits, an empty cell is no arg, and a column can be text.
func TestEnqueueCSV(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	table := "\ufeffdt, steps,label,deep,commit,\"a \"\"b\"\"\"\r\n" +
		"0.10,12345678901234567890,007,true,12e5,\"x, \"\"y\"\"\nz\"\r\n" +
		"\r\n" +
		"-1e5,,+1,False,001,\r\n" +
		" 3 ,nan,日本,TRUE,,null"
	file := filepath.Join(t.TempDir(), "sweep.csv")
	require.NoError(t, os.WriteFile(file, []byte(table), 0o600))
	stdout, stderr, code := invoke(t, "", "enqueue", "simulate", "--csv", file, "--csv-text", "commit", "--tag", "sweep1", "--queue", "q",
		"--max-attempts", "3", "--unique-by", "dt", "--metadata", `{"by": 1.50}`, "--database-url", url)
	require.Zero(t, code, stderr)
	require.Equal(t, "1\n2\n3\n", stdout)
	for id, args := range []string{
		`{"dt": 0.10, "deep": true, "a \"b\"": "x, \"y\"\nz", "label": "007", "steps": 12345678901234567890, "commit": "12e5"}`,
		`{"dt": -100000, "deep": false, "label": "+1", "commit": "001"}`,
		`{"dt": 3, "deep": true, "a \"b\"": "null", "label": "日本", "steps": "nan"}`,
	} {
		require.Equal(t, args, query[string](t, pool, "select args::text from jobq.job where id = $1", id+1))
	}
	require.Equal(t, 3, query[int](t, pool, `select count(*) from jobq.job
		where kind = 'simulate' and queue = 'q' and tags = '{sweep1}' and max_attempts = 3 and metadata::text = '{"by": 1.50}'`))

	stdout, stderr, code = invoke(t, "dt\n0.1\n", "enqueue", "simulate", "--csv", "-", "--unique-by", "dt", "--json", "--database-url", url)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, `{"id":1,`, "the key of 0.1 is that of 0.10")
}

// What cannot be read is refused with its line, and with what to do.
func TestEnqueueRefusesCSV(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	for table, want := range map[string]string{
		"":                                     "line 1: the input is empty: its first line names the columns",
		"a,b,a\n1,2,3\n":                       `line 1: there are two columns "a"`,
		"a,b, a\n1,2,3\n":                      `line 1: there are two columns "a"`,
		"a,,b\n1,2,3\n":                        "line 1: column 2 has no name",
		"a;b\n1;2\n":                           `line 1: there is one column, "a;b": put commas between columns`,
		"a,b\n1,2\n1,2,3\n":                    "line 3: the row has 3 cells, and the header 2 columns",
		"a,b\n\n1\n":                           "line 3: the row has 1 cell, and the header 2 columns",
		"a,b\n\"1\n2\",2\n1,x\"y\n":            "line 4: a quote in a cell that does not begin with one",
		"a,b\n1,\"y\n3,4\n":                    "line 2: a cell in quotes does not end with a quote",
		"a,b\n1,caf\xe9\n":                     "line 2: column b: not valid UTF-8",
		"\xff\xfea\x00\n\x00":                  "line 1: the text is UTF-16: save it as UTF-8",
		"a,b\n1,2\n3,1e999999\n":               "lines 1 to 3: ",
		"a\n\"" + strings.Repeat("x\n", 9<<20): "line 2: the row has more than 16 MiB: a quote may not be closed",
	} {
		_, stderr, code := invoke(t, table, "enqueue", "simulate", "--csv", "-", "--database-url", url)
		require.Equal(t, exitUsage, code, "%.100q: %s", table, stderr)
		require.Contains(t, stderr, want)
		require.Contains(t, stderr, "(nothing was added)")
	}
	for _, test := range []struct {
		want string
		args []string
	}{
		{`--csv-text "comit": the columns are commit, dt; did you mean commit?`, []string{"k", "--csv", "-", "--csv-text", "comit"}},
		{"--csv-text is for --csv", []string{"k", "--csv-text", "commit"}},
		{"usage: jobq enqueue KIND --csv FILE", []string{"--csv", "-"}},
		{"usage: jobq enqueue KIND --csv FILE", []string{"k", "{}", "--csv", "-"}},
		{"give one of --csv, --graph, --ndjson and --exec", []string{"--ndjson", "--csv", "-"}},
		{"--wait is for one job", []string{"k", "--wait", "--csv", "-"}},
		{"metadata are not JSON: {", []string{"k", "--metadata", "{"}},
	} {
		_, stderr, code := invoke(t, "commit,dt\n1,2\n", append([]string{"enqueue", "--database-url", url}, test.args...)...)
		require.Equal(t, exitUsage, code, test.args)
		require.Contains(t, stderr, test.want)
	}
	_, stderr, code := invoke(t, "", "enqueue", "k", "--csv", filepath.Join(t.TempDir(), "none.csv"), "--database-url", url)
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "no such file")
	require.Zero(t, query[int](t, pgtest.Connect(t, url), "select count(*) from jobq.job"))
}

// A long file is added in batches: what is before the line that is refused stays, and the error says so.
func TestEnqueueCSVInBatches(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	var table strings.Builder
	table.WriteString("n\n")
	for n := range 2500 {
		fmt.Fprintf(&table, "%d\n", n)
	}
	table.WriteString("1,2\n")
	stdout, stderr, code := invoke(t, table.String(), "enqueue", "simulate", "--csv", "-", "--database-url", url)
	require.Equal(t, exitUsage, code)
	added := query[int](t, pgtest.Connect(t, url), "select count(*) from jobq.job")
	require.GreaterOrEqual(t, added, 2*enqueueBatch)
	require.Equal(t, added, strings.Count(stdout, "\n"))
	require.Contains(t, stderr, fmt.Sprintf("line 2502: the row has 2 cells, and the header 1 column: a cell with a comma in it must be in quotes (the jobs before line %d were added)", added+2))
}
