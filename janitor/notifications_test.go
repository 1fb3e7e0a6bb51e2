package janitor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/janitor"
)

// The janitor warns while the server's queue of notifications is full, and only then.
func TestTellsOfFullNotifications(t *testing.T) {
	t.Parallel()
	f, questions := setUpTraced(t, nil)
	f.start(janitor.Config{ScanInterval: time.Hour}, janitor.ChoreTimes(0, 0, 10*time.Millisecond))
	require.Eventually(t, func() bool { return questions.times("ChoresFind") > 5 }, patience, time.Millisecond)
	require.Zero(t, questions.times("NotificationsFull"))
	f.exec("create or replace function jobq.notifications_full() returns boolean language sql return true")
	require.NotEmpty(t, f.logged(`level=WARN msg="the server's queue of notifications is almost full`, 1))
}
