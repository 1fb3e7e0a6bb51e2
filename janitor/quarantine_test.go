package janitor_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/monitor"
)

// A kind whose workers die, one after the other, is paused by the janitor that finds them,
// which says so; the jobs wait, and those of other kinds go on. Method: each worker is a
// lease that has expired.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := setUp(t)
	var mu sync.Mutex
	var told []janitor.Event
	f.start(janitor.Config{ScanInterval: 20 * time.Millisecond, OnEvent: func(event janitor.Event) {
		mu.Lock()
		defer mu.Unlock()
		if event.Type == monitor.EventQuarantined {
			told = append(told, event)
		}
	}})
	m := monitor.New(f.client)
	kind := func(name string) (found monitor.Kind) {
		kinds, err := m.Kinds(ctx)
		require.NoError(t, err)
		for _, kind := range kinds {
			if kind.Name == name {
				found = kind
			}
		}
		return found
	}
	for crash := 1; crash <= 5; crash++ {
		require.Nil(t, kind("Encode").PausedAt, crash)
		// What ended in the minute of a crash counts as later.
		f.exec("update jobq.kind set crashed_at = crashed_at - interval '10 minutes'")
		f.exec("update jobq.stat_delta set minute = minute - interval '10 minutes'")
		f.exec("update jobq.stat set minute = minute - interval '10 minutes'")
		require.NoError(t, pgtest.InsertRunning(ctx, f.pool, 1, pgtest.Columns{
			"kind": "'Encode'", "started_at": "now() - interval '1 minute'", "lease_expires_at": "now() - interval '1 second'",
		}))
		require.Eventually(t, func() bool { return kind("Encode").Crashes == crash }, patience, 5*time.Millisecond)
	}
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(told) == 1 }, patience, 5*time.Millisecond)
	require.Equal(t, "Encode", told[0].Kind)
	paused := kind("Encode")
	require.NotNil(t, paused.PausedAt)
	require.Equal(t, "jobq", paused.PausedBy)
	require.Equal(t, "quarantine: workers that ran it crashed 5 times in a row", paused.PauseReason)
	audit, err := m.Audit(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, audit, 1)
	require.Equal(t, "jobq", audit[0].Actor)
	events, err := m.Events(ctx, 0, 100)
	require.NoError(t, err)
	var quarantined int
	for _, event := range events {
		if event.Type == monitor.EventQuarantined {
			quarantined++
		}
	}
	require.Equal(t, 1, quarantined, "of which one row is kept")
	require.Contains(t, f.log.String(), `msg="kind quarantined: its workers crash" janitor=leader kind=Encode crashes=5`)
}

// A job that was alone in its worker each time that one was lost is known to do it. It fails after its attempts, and its kind goes
// on: others of the kind do no harm. Method: a job that has crashed twice is lost six times, and nothing of its kind ends.
func TestOneJobDoesNotQuarantineItsKind(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := setUp(t)
	f.start(janitor.Config{ScanInterval: 20 * time.Millisecond})
	for crash := 1; crash <= 6; crash++ {
		f.exec("update jobq.kind set crashed_at = crashed_at - interval '10 minutes'") // as in TestQuarantine
		require.NoError(t, pgtest.InsertRunning(ctx, f.pool, 1, pgtest.Columns{
			"kind": "'Encode'", "crashes": "2", "started_at": "now() - interval '1 minute'", "lease_expires_at": "now() - interval '1 second'",
		}))
		require.Eventually(t, func() bool { return strings.Count(f.log.String(), "alone in its worker") == crash }, patience, 5*time.Millisecond)
	}
	kinds, err := monitor.New(f.client).Kinds(ctx)
	require.NoError(t, err)
	for _, kind := range kinds {
		require.Nil(t, kind.PausedAt)
		require.Zero(t, kind.Crashes)
	}
}
