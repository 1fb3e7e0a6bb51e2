package ahead_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/ahead"
)

// jobs are those of a lease in the slots 1, 2, …; the runs are 10 times the lease and the slot.
func jobs(token int64, last ...bool) (all []ahead.Job[int]) {
	for i, isLast := range last {
		all = append(all, ahead.Job[int]{Run: int(token)*10 + i + 1, Slot: db.Slot{Token: token, Slot: int16(i + 1)}, Last: isLast})
	}
	return all
}

func begin(token int64, slot int16) []db.LeaseBegin {
	return []db.LeaseBegin{{Token: token, Slot: slot}}
}

func idle(int64) bool { return false }

// The example of the package: a job that would fail if it was lost begins only when a slot is free for it.
func TestExample(t *testing.T) {
	t.Parallel()
	var line ahead.Line[int]
	line.Add(jobs(900, false, false, false, true, false), 2, 5)
	require.Equal(t, []int{9001, 9002}, line.Ready())
	asked := line.Ask(0, 1, 1, idle)
	require.Equal(t, begin(900, 3), asked)
	require.Empty(t, line.Ready(), "not stored yet")
	line.Answered(asked, []int64{900}, 0)
	require.Equal(t, []int{9003}, line.Ready())
	asked = line.Ask(0, 1, 1, idle)
	require.Equal(t, begin(900, 5), asked)
	line.Answered(asked, []int64{900}, 0)
	require.Equal(t, []int{9004, 9005}, line.Ready())
	require.Zero(t, line.Len())
}

// Without a job whose loss would be its last, all that begin soon do so at once.
func TestSoon(t *testing.T) {
	t.Parallel()
	var line ahead.Line[int]
	line.Add(jobs(1, false, false, false), 1, 2)
	require.Equal(t, []int{11, 12}, line.Ready())
	require.Equal(t, 1, line.Len())
}

// What a request under way lets begin takes slots from the next one, and so does what is ahead of them.
func TestAskBesideARequest(t *testing.T) {
	t.Parallel()
	var line ahead.Line[int]
	line.Add(jobs(1, false, false, false, false), 0, 0)
	require.Equal(t, begin(1, 2), line.Ask(0, 1, 1, idle))
	require.Empty(t, line.Ask(0, 1, 1, idle))
	require.Equal(t, begin(1, 3), line.Ask(0, 2, 1, idle))
	require.Empty(t, line.Ask(0, 4, 0, func(token int64) bool { return token == 1 }), "the other request has its row")
}

// Nothing begins of a lease that was not stored, and jobs of other leases do not wait for it.
func TestNotStored(t *testing.T) {
	t.Parallel()
	var line ahead.Line[int]
	line.Add(jobs(1, true), 0, 0)
	line.Add(jobs(2, true), 0, 0)
	asked := line.Ask(0, 1, 5, idle)
	require.Equal(t, begin(1, 1), asked)
	require.Equal(t, []int{11}, line.Answered(asked, nil, time.Second))
	require.Empty(t, line.Ready())
	at, ok := line.RetryAt(0)
	require.True(t, ok)
	require.Equal(t, time.Second, at)
	asked = line.Ask(0, 1, 5, idle)
	require.Equal(t, begin(2, 1), asked)
	line.Answered(asked, []int64{2}, 0)
	require.Equal(t, []int{21}, line.Ready())
	require.Equal(t, begin(1, 1), line.Ask(time.Second, 1, 5, idle))
	require.Equal(t, []int{11}, line.Remove(func(run int) bool { return run == 11 }))
	require.Zero(t, line.Len())
}
