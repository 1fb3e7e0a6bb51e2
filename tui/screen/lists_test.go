package screen

import (
	"context"
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
	s.tell(data.Answer{Panel: data.Count, About: "kind:Other", Value: counted{}})
	require.Contains(t, s.text(), "asking the database")
	require.NotContains(t, s.text(), "no job matches")
	s.tell(s.answer(data.Page, &source{}))
	require.Contains(t, s.text(), "no job matches")

	s.tell(ShowJobs{Match: "kind:Another"})
	s.tell(s.answer(data.Page, &source{}), data.Answer{Panel: data.Count, About: "kind:Another", Err: errors.New("no")})
	require.Contains(t, s.text(), "no job matches", "without a count")
}

// windowed is a database of two jobs among millions, which answers only where few ids are to be searched.
type windowed struct {
	source
	newest int64
}

func (r *windowed) List(ctx context.Context, f jobq.Filter) (*jobq.Page, error) {
	var lower, upper int64
	if _, err := fmt.Sscanf(f.Match, "kind:Rare id:>%d id:<=%d", &lower, &upper); err != nil {
		if f.Match == "kind:Rare" {
			return nil, jobq.ErrTimeout
		}
		return &jobq.Page{Jobs: []*jobq.Job{{ID: r.newest}}}, nil
	}
	if r.err != nil {
		return nil, r.err
	}
	page := &jobq.Page{}
	for _, job := range r.jobs {
		if job.ID > lower && job.ID <= upper {
			page.Jobs = append(page.Jobs, job)
		}
	}
	return page, nil
}

// Where all jobs are too many to search at once, the list goes on below the newest by itself, says how far
// it is, and says that no job matches only when it has looked at all of them.
func TestSearchGoesOn(t *testing.T) {
	t.Parallel()
	search := func(r *windowed) *stage {
		s := newStage(t, 120, 20, newJobs)
		s.tell(ShowJobs{Match: "kind:Rare"})
		s.tell(s.answer(data.Page, r))
		s.tell(s.answer(data.Page, r))
		return s
	}
	r := &windowed{newest: 5_000_000, source: source{jobs: someJobs(2, jobq.StateFailed)}}
	r.jobs[0].ID, r.jobs[1].ID = 1_234_567, 3
	s := search(r)
	require.Contains(t, s.text(), "none found yet")
	require.Contains(t, s.text(), "searching: 8% of all jobs so far")
	for range 9 {
		s.tell(s.answer(data.More, r), s.answer(data.Page, r))
	}
	require.NotContains(t, s.text(), "none found yet")
	require.Contains(t, s.text(), "1234567")
	r.err = jobq.ErrTimeout
	s.tell(s.answer(data.More, r))
	require.Contains(t, s.text(), "80% of all jobs searched, and then: timed out")
	r.err = nil
	s.do("end")
	for range 3 {
		s.tell(s.answer(data.More, r))
	}
	require.Regexp(t, `(?m)^.. +3 failed`, s.text())
	require.NotContains(t, s.text(), "of all jobs")

	s = search(&windowed{newest: 900_000})
	s.tell(s.answer(data.More, &windowed{}))
	require.NotContains(t, s.text(), "no job matches")
	s.tell(s.answer(data.More, &windowed{}))
	require.Contains(t, s.text(), "no job matches")
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
