package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func at(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)) }

// Of the server's log, the steps of named statements count, and errors; what a statement's text has in further lines
// does not.
func TestServerLog(t *testing.T) {
	t.Parallel()
	const log = `1764000000.500 [71] old-1|LOG:  duration: 250.125 ms  bind stmtcache_1: -- name: JobClaim :many
	with candidate as materialized (
1764000001.000 [71] old-1|LOG:  duration: 6.000 ms  execute stmtcache_1: -- name: JobClaim :many
1764000001.000 [72] old-2|LOG:  duration: 7.500 ms  parse stmtcache_2: -- name: LeaseEnd :many
1764000001.000 [73] command|LOG:  duration: 900.000 ms  statement: alter table jobq.pending add column later text
1764000002.000 [74] inserter|ERROR:  canceling statement due to lock timeout
1764000002.000 [74] inserter|STATEMENT:  select 'ERROR: 1'
1764000003.000 [70] |LOG:  checkpoint starting: time
1764000004.000 [75] [unknown]|FATAL:  terminating connection
1764000005.000 [76] jobq-listen|FATAL:  connection to client lost`
	read, err := readServerLog(strings.NewReader(log))
	require.NoError(t, err)
	require.Equal(t, map[string][]span{
		"JobClaim": {{at(1764000000.249875), at(1764000000.5)}, {at(1764000000.994), at(1764000001)}},
		"LeaseEnd": {{at(1764000000.9925), at(1764000001)}},
	}, read.slow)
	require.Equal(t, []string{
		"1764000002.000 [74] inserter|ERROR:  canceling statement due to lock timeout",
		"1764000004.000 [75] [unknown]|FATAL:  terminating connection",
	}, read.errors)
	require.Len(t, read.of(claims), 2)
	require.Len(t, read.of(ends), 1)
}

// What has begun before a migration, or ends after it, is a stall of it, too.
func TestLongest(t *testing.T) {
	t.Parallel()
	spans := []span{{at(1), at(2)}, {at(4), at(7)}, {at(11), at(20)}}
	require.Equal(t, time.Second, longest(spans, span{at(0), at(1.5)}))
	require.Equal(t, 3*time.Second, longest(spans, span{at(6), at(10)}))
	require.Equal(t, 9*time.Second, longest(spans, span{at(5), at(12)}))
	require.Zero(t, longest(spans, span{at(8), at(10)}))
}

// Each way in which jobs do not run exactly once is seen.
func TestNotOnce(t *testing.T) {
	t.Parallel()
	calls := []call{{id: 1}, {id: 2}}
	ran := []begun{{id: 1, attempt: 1}, {id: 2, attempt: 1}}
	completed := map[int64]int{1: 0, 2: 0}
	require.Empty(t, notOnce(calls, ran, completed))
	require.NotEmpty(t, notOnce(calls, ran[:1], completed), "one never ran")
	require.NotEmpty(t, notOnce(calls, append(ran[:2:2], begun{id: 2, attempt: 1}), completed), "one ran twice")
	require.NotEmpty(t, notOnce(calls, []begun{ran[0], {id: 2, attempt: 2}}, completed), "one was tried before")
	require.NotEmpty(t, notOnce(calls, ran, map[int64]int{1: 0}), "one is not stored as completed")
	require.NotEmpty(t, notOnce(calls, ran, map[int64]int{1: 0, 2: 1}), "one is stored with a run before")
	require.NotEmpty(t, notOnce(calls[:1], ran, completed), "one ran that nobody has added")
}

// A line that a handler is just writing is not read yet.
func TestReadBegun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "begun")
	all, err := readBegun(path)
	require.NoError(t, err)
	require.Empty(t, all)
	require.NoError(t, os.WriteFile(path, []byte("7 1 old-1 5000000000\n8 1 new-1 60000"), 0o600))
	all, err = readBegun(path)
	require.NoError(t, err)
	require.Equal(t, []begun{{id: 7, attempt: 1, worker: "old-1", at: at(5)}}, all)
	require.NoError(t, os.WriteFile(path, []byte("seven\n"), 0o600))
	_, err = readBegun(path)
	require.ErrorContains(t, err, "seven")
}

// The further migrations follow those of the working tree, and let its programs go on.
func TestOverlay(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, count, err := overlayLater("/tree", folder, 41)
	require.NoError(t, err)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	var overlay struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(content, &overlay))
	require.Len(t, overlay.Replace, 2*count)
	for i, m := range later(41) {
		for _, direction := range []string{"up", "down"} {
			sql, err := os.ReadFile(overlay.Replace[fmt.Sprintf("/tree/sql/migrations/%03d_%s.%s.sql", 42+i, m.name, direction)])
			require.NoError(t, err)
			if direction == "up" {
				require.Contains(t, string(sql), "-- jobq:compatible-from 41\n")
			}
		}
	}
}

// A commit is refused whose migrations are others than those of the working tree, or are not there any more. Later ones are welcome.
func TestOnlyWithTheSameMigrations(t *testing.T) {
	t.Parallel()
	source, root := t.TempDir(), t.TempDir()
	write := func(folder, name, content string) {
		folder = filepath.Join(folder, migrationFolder)
		require.NoError(t, os.MkdirAll(folder, 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	write(source, "001_tables.up.sql", "select 1;")
	require.ErrorContains(t, checkSame(source, root), "001_tables.up.sql has changed since")
	write(root, "001_tables.up.sql", "select 2;")
	require.ErrorContains(t, checkSame(source, root), "001_tables.up.sql has changed since")
	write(root, "001_tables.up.sql", "select 1;")
	write(root, "002_later.up.sql", "select 2;")
	require.NoError(t, checkSame(source, root))
}
