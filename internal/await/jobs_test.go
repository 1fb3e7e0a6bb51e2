package await

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// begun is some moment; these tests read no clock.
var begun = time.Date(2026, 11, 23, 5, 0, 0, 0, time.UTC)

func newJobs(count int64, isNew bool) (*jobs, map[int64]*wait) {
	s := &jobs{byID: make(map[int64]*job)}
	joined := make(map[int64]*wait)
	for id := int64(1); id <= count; id++ {
		joined[id] = s.join(id, isNew, begun.Add(time.Duration(id)))
	}
	return s, joined
}

// looks takes all that is to be looked at, in batches.
func (s *jobs) looks() (sizes []int) {
	for {
		ids := s.takeLooks(batchMax)
		if len(ids) == 0 {
			return sizes
		}
		sizes = append(sizes, len(ids))
	}
}

// A job that may have ended before is looked at once before it is announced, and one that
// is new is not. After the announcement each is looked at, and again when a notification
// names it, but not because of others.
func TestLooks(t *testing.T) {
	t.Parallel()
	s, _ := newJobs(2500, false)
	require.Equal(t, []int{1000, 1000, 500}, s.looks())
	ids, forget := s.takeAnnouncements()
	require.Empty(t, append(ids, forget...), "no notification would arrive")

	s, _ = newJobs(1500, true)
	require.Empty(t, s.looks())
	s.setArriving(true, begun)
	for _, want := range []int{1000, 500} {
		ids, _ := s.takeAnnouncements()
		require.Len(t, ids, want)
		s.isAnnounced(ids)
		require.Equal(t, []int{want}, s.looks())
	}
	require.False(t, s.notified("4711 x -1 99999999999999999999"))
	require.Empty(t, s.looks())
	require.True(t, s.notified("7 4711 8 7"))
	require.Equal(t, []int64{7, 8}, s.takeLooks(batchMax))
}

// Without notifications each job is looked at again after a second; with them after ever
// longer, as far as it was announced. The ones of one statement are those that were
// looked at first.
func TestDue(t *testing.T) {
	t.Parallel()
	s, joined := newJobs(1500, true)
	s.due(begun)
	require.Empty(t, s.looks())
	now := begun.Add(pollMin + time.Millisecond)
	s.due(now)
	ids := s.takeLooks(batchMax)
	require.Len(t, ids, batchMax)
	require.EqualValues(t, 1, ids[0])
	s.looked(ids, nil, true, now)
	s.due(now)
	rest := s.takeLooks(batchMax)
	require.Len(t, rest, 500)
	require.EqualValues(t, 1001, rest[0])
	s.looked(rest, nil, true, now)
	s.due(now.Add(pollMin * 8 / 10))
	require.Empty(t, s.looks())

	s.setArriving(true, now)
	for joined[1].job.isAnnounce || !joined[1].job.announced {
		ids, _ := s.takeAnnouncements()
		s.isAnnounced(ids)
	}
	for _, want := range []time.Duration{pollMin, 2 * pollMin, 4 * pollMin, 8 * pollMin, pollMax, pollMax} {
		s.looked([]int64{1}, nil, true, now)
		require.InDelta(t, want, joined[1].job.lookAt.Sub(now), float64(want/10))
	}
	s.setArriving(false, now)
	require.LessOrEqual(t, joined[1].job.lookAt.Sub(now), pollMin)
}

// Those who wait for one job share it. The last to leave takes it away, and then the
// database is to forget it, unless somebody has come again.
func TestLeave(t *testing.T) {
	t.Parallel()
	s, joined := newJobs(3, true)
	s.setArriving(true, begun)
	other := s.join(1, true, begun)
	require.Same(t, joined[1].job, other.job)
	ids, _ := s.takeAnnouncements()
	s.isAnnounced(ids)
	s.leave(joined[1])
	s.leave(joined[1])
	require.Contains(t, s.byID, int64(1))
	s.leave(other)
	require.NotContains(t, s.byID, int64(1))
	s.leave(joined[2])
	again := s.join(2, true, begun)
	ids, forget := s.takeAnnouncements()
	require.Equal(t, []int64{2}, ids)
	require.Equal(t, []int64{1}, forget)

	s.notAnnounced(ids, forget)
	ids, forget = s.takeAnnouncements()
	require.Equal(t, []int64{2}, ids, "it is tried again")
	require.Equal(t, []int64{1}, forget)
	s.leave(again)
	s.isAnnounced(ids)
	require.Equal(t, []int64{2}, s.takeForget(), "who left while it was announced")
}

// What an answer says is over, once; what it had no room for is asked for at once, and an
// error is that of those jobs alone.
func TestLooked(t *testing.T) {
	t.Parallel()
	s, joined := newJobs(4, false)
	ids := s.takeLooks(batchMax)
	s.looked(ids, []db.EndReadRow{{ID: 1, State: "completed"}, {ID: 4711}}, false, begun)
	<-joined[1].done
	require.Equal(t, "completed", joined[1].row.State)
	require.Equal(t, []int64{2, 3, 4}, s.takeLooks(batchMax))
	broken := errors.New("broken")
	s.notLooked([]int64{1, 2}, broken, begun)
	<-joined[2].done
	require.Equal(t, broken, joined[2].err)
	require.NoError(t, joined[1].err)
	s.notLooked([]int64{3}, nil, begun)
	require.Equal(t, begun.Add(pollMin), joined[3].job.lookAt)
	again := s.join(2, false, begun)
	require.NotSame(t, joined[2].job, again.job, "a new wait")
	s.leave(joined[2])
	require.Same(t, again.job, s.byID[2])
}

// An answer is for those who waited when the look was sent: for who comes between the two,
// the job may have been enqueued or requeued meanwhile, and is looked at once more.
func TestAnswerOfAnEarlierLook(t *testing.T) {
	t.Parallel()
	for _, answer := range []func(s *jobs, ids []int64){
		func(s *jobs, ids []int64) {
			s.looked(ids, []db.EndReadRow{{ID: 1, State: StateGone}}, true, begun)
		},
		func(s *jobs, ids []int64) { s.notLooked(ids, errors.New("broken"), begun) },
	} {
		s, joined := newJobs(1, false)
		ids := s.takeLooks(batchMax)
		late := s.join(1, false, begun)
		answer(s, ids)
		<-joined[1].done
		select {
		case <-late.done:
			require.FailNow(t, "that was asked before")
		default:
		}
		ids = s.takeLooks(batchMax)
		require.Equal(t, []int64{1}, ids)
		s.looked(ids, []db.EndReadRow{{ID: 1, State: "completed"}}, true, begun)
		<-late.done
		require.Equal(t, "completed", late.row.State)
		require.Empty(t, s.byID)
	}
}

// It is worth while to listen once a look has found a job that has not ended, or when a
// new job is to be waited for.
func TestIsOpen(t *testing.T) {
	t.Parallel()
	s, _ := newJobs(2, false)
	ids := s.takeLooks(batchMax)
	s.looked(ids[:1], []db.EndReadRow{{ID: 1, State: "completed"}}, true, begun)
	require.False(t, s.isOpen())
	s.looked(ids[1:], nil, true, begun)
	require.True(t, s.isOpen())
	s, _ = newJobs(1, true)
	require.True(t, s.isOpen())
}
