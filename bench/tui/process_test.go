package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

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

// The memory of this process is read as that of any other.
func TestReadResident(t *testing.T) {
	t.Parallel()
	bytes, err := readResident(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, bytes, int64(1<<20))
}
