package screen

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
)

// When the pages on the way to the end of the list do not come, the list says so,
// and is not on its way any more.
func TestEndFails(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 20, newJobs)
	r := &source{jobs: someJobs(250, jobq.StateFailed)}
	s.tell(s.answer(data.Page, r))
	s.do("end")
	require.Contains(t, s.text(), "going to the end of the list")
	r.err = jobq.ErrTimeout
	s.tell(s.answer(data.More, r))
	require.NotContains(t, s.text(), "going to the end of the list")
	require.Contains(t, fmt.Sprint(s.asked), "end: timed out")
}

// That no job matches is said when the page has come that says so, and not before,
// whatever other lists have shown and whatever became of the count.
func TestNoJobIsKnown(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 20, newJobs)
	r := &source{jobs: someJobs(3, jobq.StateFailed)}
	s.tell(s.answer(data.Page, r))
	s.tell(ShowJobs{Match: "kind:Other"})
	s.tell(data.Answer{Panel: data.Count, About: "kind:Other", Value: int64(0)})
	require.Contains(t, s.text(), "asking the database")
	require.NotContains(t, s.text(), "no job matches")
	s.tell(s.answer(data.Page, &source{}))
	require.Contains(t, s.text(), "no job matches")

	s.tell(ShowJobs{Match: "kind:Another"})
	s.tell(s.answer(data.Page, &source{}), data.Answer{Panel: data.Count, About: "kind:Another", Err: errors.New("no")})
	require.Contains(t, s.text(), "no job matches", "without a count")
}

// runsOf is a job with so many runs that have ended.
func runsOf(count int, state jobq.State) Story {
	job := someJobs(1, state)[0]
	job.LeaseToken = int64(count)
	if state == jobq.StateRunning {
		job.LeaseToken++
	}
	story := Story{job: job}
	for i := range count {
		at := noon.Add(time.Duration(i-count) * time.Minute)
		story.runs = append(story.runs, monitor.Attempt{
			Number: i + 1, Outcome: jobq.OutcomeFailed, StartedAt: at, FinishedAt: at.Add(time.Second), LeaseToken: int64(i + 1),
			Output: fmt.Sprintf("written by %d", i+1),
		})
	}
	return story
}

// The run that is being read stays the chosen one when another begins or ends; who
// reads the newest follows to the one after.
func TestChosenRunStays(t *testing.T) {
	t.Parallel()
	for down, want := range []string{"Output of run 4", "Output of run 2"} {
		s := newStage(t, 120, 30, func(kit Kit) Screen { return NewJob(kit) })
		take := func(story Story) {
			s.tell(data.Answer{Panel: data.Job, About: s.Wants()[0].About, Value: story})
		}
		s.tell(ShowJob{runsOf(3, jobq.StateFailed).job.ID})
		take(runsOf(3, jobq.StateFailed))
		if down > 0 {
			s.do("down")
			require.Contains(t, s.text(), want)
			require.Contains(t, s.text(), "written by 2")
		}
		take(runsOf(3, jobq.StateRunning))
		if down > 0 {
			require.Contains(t, s.text(), want)
			require.Contains(t, s.text(), "written by 2")
		}
		take(runsOf(4, jobq.StateFailed))
		require.Contains(t, s.text(), want)
	}
}

// Keys that scroll by pages or half pages, and the wheel, never choose another run.
func TestScrollingChoosesNoRun(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"half-down", "page-down", "half-up", "page-up", "wheel"} {
		s := newStage(t, 120, 16, func(kit Kit) Screen { return NewJob(kit) })
		s.tell(ShowJob{runsOf(9, jobq.StateFailed).job.ID})
		s.tell(data.Answer{Panel: data.Job, About: s.Wants()[0].About, Value: runsOf(9, jobq.StateFailed)})
		s.do("down")
		require.Contains(t, s.text(), "Output of run 8")
		before := s.text()
		if key == "wheel" {
			s.tell(Scroll{-3})
		} else {
			s.do(key)
		}
		require.Contains(t, s.text(), "Output of run 8", key)
		if strings.HasSuffix(key, "up") || key == "wheel" {
			require.NotEqual(t, before, s.text(), key)
		}
	}
}

// The failures of late are summed up when an answer comes, and not for each
// comparison and each frame.
func TestFailuresAreSummedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 40, func(kit Kit) Screen { return NewOverview(kit) })
	var minutes []monitor.Minute
	var queues []monitor.Queue
	for i := range 100 {
		name := fmt.Sprintf("q%03d", i)
		queues = append(queues, monitor.Queue{Name: name, Slots: 1})
		minutes = append(minutes, monitor.Minute{At: noon.Add(-time.Minute), QueueStats: monitor.QueueStats{Queue: name, Failed: int64(i)}})
	}
	s.tell(data.Answer{Panel: data.Minutes, Value: minutes}, data.Answer{Panel: data.Queues, Value: queues})
	require.Equal(t, "q099", s.kit.Facts.Failing()[0])
	require.Equal(t, "q001", s.kit.Facts.Failing()[98])
	s.kit.Facts.Minutes = nil // nothing looks at them any more
	require.Equal(t, int64(99), s.kit.Facts.FailedOfLate("q099"))
}
