package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Progress is a line that changes on a terminal, and elsewhere a line every ten
// seconds, however many batches there are.
func TestProgressLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		line := newProgressLine(&log)
		for i := range 250 { // 25 seconds
			line.say("requeue: %d done", i)
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the clock is synctest's
		}
		line.end()
		require.Equal(t, "requeue: 100 done\nrequeue: 200 done\n", log.String())
	})
	var screen strings.Builder
	line := &progressLine{out: &screen, terminal: true}
	line.say("requeue: %d done", 1)
	line.say("requeue: %d done", 2)
	line.end()
	require.Equal(t, "\rrequeue: 1 done\rrequeue: 2 done\n", screen.String())
}

// An action by filter writes no line for each batch where there is no terminal,
// and on one it has a single line.
func TestBulkProgress(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	makeFailed(t, url, "email", 1200) // three batches
	args := []string{"requeue", "--filter", "queue:email", "--yes", "--database-url", url}
	out, stderr, code := invoke(t, "", args...)
	require.Zero(t, code, stderr)
	require.Regexp(t, `^(requeue: [\d,]+ done, 0 refused\n){0,3}$`, stderr, "one each 10 s at most, and one a batch")
	require.Equal(t, "requeue: 1,200 jobs, 0 refused; take it back with: jobq undo 1\n", out)
	args[0] = "cancel"
	screen, code := onTerminal(t, args...)
	require.Zero(t, code, screen)
	require.Equal(t, 3, strings.Count(screen, "\r"), "%q", screen)
	require.Equal(t, 2, strings.Count(screen, "\n"), "%q", screen)
}
