package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// floodVariable sets how many bytes the programs of TestFlood write.
const floodVariable = "JOBQ_FLOOD_BYTES"

// A flood of output, with and without lines, also on standard error and on the
// control channel, ends normally, leaves its end, and costs the worker little
// memory.
func TestFlood(t *testing.T) {
	t.Parallel()
	amount := 100 << 20
	if text := os.Getenv(floodVariable); text != "" {
		var err error
		amount, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	w := startProcess(t, "worker", "--database-url", url, "-q", "default=1",
		"--run", "warm=true",
		"--run", fmt.Sprintf("lines=sh -c 'yes line | head -c %d; echo end'", amount),
		"--run", fmt.Sprintf("no-lines=sh -c 'head -c %d /dev/zero; echo end'", amount),
		"--run", fmt.Sprintf("errors=sh -c 'head -c %d /dev/zero >&2; echo end >&2'", amount),
		"--run", fmt.Sprintf("control=sh -c 'head -c %d /dev/zero >&3; echo end'", amount))
	finish := func(kind, state string) {
		id := query[int64](t, pool, "select jobq.enqueue($1, max_attempts => 1)", kind)
		eventually(t, pool, state, "select state::text from jobq.job where id = $1", id)
		if kind != "warm" {
			output := query[string](t, pool, "select output from jobq.attempt where job_id = $1", id)
			require.True(t, strings.HasSuffix(output, "end\n"), kind)
			require.LessOrEqual(t, len(output), 64<<10)
		}
	}
	finish("warm", "completed")
	idle := peakRSS(t, w.Process.Pid)
	finish("lines", "completed")
	finish("no-lines", "completed")
	finish("errors", "completed")
	finish("control", "failed") // a line that is too long
	grown := peakRSS(t, w.Process.Pid) - idle
	t.Logf("peak memory of the worker: %d KiB idle, %d KiB more after four times %d MiB of output", idle, grown, amount>>20)
	if !raceDetector {
		require.Less(t, grown, 64<<10)
	}
	require.Zero(t, query[int](t, pool, "select count(*) from jobq.output o where octet_length(o.content) > 65536"))
}

// peakRSS is the most memory that a process has had, in KiB.
func peakRSS(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	match := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, match)
	peak, err := strconv.Atoi(string(match[1]))
	require.NoError(t, err)
	return peak
}
