package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A name may have spaces and parentheses; what is not in the content is an
// error and not a zero.
func TestParseStat(t *testing.T) {
	t.Parallel()
	p, err := parseStat("4711 (a) b (c)) S 1 4711 4711 0 -1 4194304 9 8 7 6 250 50 3 2 20 0 1 0 99\n")
	require.NoError(t, err)
	require.Equal(t, process{"a) b (c)", 3 * time.Second}, p)
	for _, content := range []string{"", "4711", "4711 ) (", "4711 (jobq) S 1 2 3", "4711 (jobq) S 1 2 3 4 5 6 7 8 9 10 x 50"} {
		_, err := parseStat(content)
		require.Error(t, err, "%q", content)
	}
}

// A process that has ended has no line of memory: it does not use none.
func TestParseResident(t *testing.T) {
	t.Parallel()
	bytes, err := parseResident("Name:\tjobq\nVmHWM:\t   99999 kB\nVmRSS:\t   28672 kB\nThreads:\t9\n")
	require.NoError(t, err)
	require.EqualValues(t, 28<<20, bytes)
	for _, content := range []string{"", "Name:\tjobq\nState:\tZ (zombie)\n", "Name:\tjobq\nVmRSS:\t kB\n", "Name:\tjobq\nVmRSS:\t1 MB\n"} {
		_, err := parseResident(content)
		require.Error(t, err, "%q", content)
	}
}

// Goal: sessions that cannot be measured are an error: there are none, they are
// on another machine, or their number is here that of another program.
func TestSessionTimesUnknown(t *testing.T) {
	t.Parallel()
	_, err := sessionTimes(nil)
	require.ErrorContains(t, err, "no session")
	const beyond = 1 << 30 // Linux numbers no process so high
	_, err = sessionTimes([]int32{beyond})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = sessionTimes([]int32{int32(os.Getpid())})
	require.ErrorContains(t, err, "on this machine")
	_, err = readResident(beyond)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// This process is read as any other.
func TestReadProcess(t *testing.T) {
	t.Parallel()
	p, err := readProcess(os.Getpid())
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(p.name, "tui"), p.name)
	bytes, err := readResident(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, bytes, int64(1<<20))
}
