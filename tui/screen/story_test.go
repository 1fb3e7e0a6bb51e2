package screen

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/data"
)

// texts are what has happened to a job, in words.
func texts(story Story) (all []string) {
	for _, moment := range story.moments() {
		word, _, _ := strings.Cut(moment.text, "  ")
		all = append(all, word)
	}
	return all
}

// What has happened once is told once: the end of the last run is the end of the job,
// an operator who cancels a job that waits is why it is cancelled, and a job that may
// run when it is created, or when it is requeued, is not told to do so.
func TestMomentsAreToldOnce(t *testing.T) {
	t.Parallel()
	failed := runsOf(2, jobq.StateFailed)
	require.Equal(t, []string{"created", "run 1", "failed", "run 2", "failed"}, texts(failed))
	cancelled := runsOf(1, jobq.StateFailed)
	cancelled.job.State = jobq.StateCancelled
	require.Equal(t, []string{"created", "run 1", "failed", "cancelled"}, texts(cancelled), "nobody else says so")
	cancelled.actions = []monitor.JobAction{{At: noon, Action: jobq.ActionCancel, Actor: "ana", Before: jobq.StateScheduled, After: jobq.StateCancelled}}
	require.Equal(t, []string{"created", "run 1", "failed", "cancel by ana: cancelled, was scheduled"}, texts(cancelled))
	completed := someJobs(1, jobq.StateCompleted)[0]
	require.Equal(t, []string{"created", "run 1", "completed"}, texts(Story{job: completed}))
	waits := someJobs(1, jobq.StateAvailable)[0]
	waits.StartedAt, waits.FinishedAt = nil, nil
	require.Equal(t, []string{"created"}, texts(Story{job: waits}))
	waits.RunAt = noon
	require.Equal(t, []string{"created", "may run"}, texts(Story{job: waits}))
	requeued := []monitor.JobAction{{At: noon, Action: jobq.ActionRequeue, Actor: "ana", Before: jobq.StateFailed, After: jobq.StateAvailable}}
	require.Equal(t, []string{"created", "requeue by ana: available, was failed"}, texts(Story{job: waits, actions: requeued}))
}

// What a program has written is shown once, also when the error of its run repeats
// its last words; what the output does not have is shown as well.
func TestOutputIsShownOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ err, output, want string }{
		{"exit code 65: no such mailbox", "no such mailbox\n", "exit code 65\nno such mailbox"},
		{"exit code 1: smtp 421\nconnect\nsmtp 421", "hello\nconnect\nsmtp 421\n", "exit code 1\nhello\nconnect\nsmtp 421"},
		{"exit code 1: smtp 421\nconnect\nsmtp 421", "hello\n", "exit code 1: smtp 421\nconnect\nsmtp 421\nhello"},
		{"timed out", "connect\n", "timed out\nconnect"},
		{"smtp 421", "smtp 421\n", "smtp 421"},
		{"smtp 421", "", "smtp 421"},
		{"", "sent\n", "sent"},
	} {
		require.Equal(t, test.want, textOf(monitor.Attempt{Error: test.err, Output: test.output}))
	}
}

// The preview of a job with many runs shows the newest: what there is no room for is
// what happened first.
func TestPreviewShowsTheNewest(t *testing.T) {
	t.Parallel()
	story := runsOf(9, jobq.StateFailed)
	for i := range story.runs {
		story.runs[i].Error = fmt.Sprintf("exit code %d: a rather long explanation of what went wrong", i+1)
	}
	for _, cells := range []int{80, 120, 200} {
		s := newStage(t, cells, 30, newJobs)
		s.tell(s.answer(data.Page, &source{jobs: []*jobq.Job{story.job}}))
		s.tell(data.Answer{Panel: data.Job, About: storyQuestion{id: story.job.ID}, Value: story})
		for _, line := range strings.Split(s.text(), "\n") {
			switch {
			case strings.HasPrefix(line, " runs "):
				require.Regexp(t, `^ runs     #9 failed 1\.0s exit code 9: `, line)
			case strings.HasPrefix(line, " timeline "):
				require.Contains(t, line[:min(len(line), cells+20)], "14:01:31 run 9 ─ 14:01:32 failed")
				require.LessOrEqual(t, len([]rune(line)), cells)
				require.Contains(t, line, " timeline … ")
			}
		}
		require.NotContains(t, s.text(), "lease -")
		require.NotContains(t, s.text(), "metadata")
	}
}

// When a worker says that the run of the job in the preview has ended, or something
// was done to it, the database is asked for what became of it at once.
func TestPreviewAsksForTheRecord(t *testing.T) {
	t.Parallel()
	jobs := someJobs(1, jobq.StateRunning)
	jobs[0].FinishedAt, jobs[0].LeaseToken = nil, 7
	r := &source{jobs: jobs}
	s := newStage(t, 120, 30, newJobs)
	s.tell(s.answer(data.Page, r))
	s.tell(s.answer(data.Job, r))
	asked := func() any { return s.answer(data.Job, r).About }
	before := asked()
	s.tell(data.Feed{At: noon, Events: []data.Event{{ID: 1000, Token: 7, State: jobq.StateRunning, Percent: 40}}})
	require.Equal(t, before, asked(), "progress is in the event")
	s.tell(data.Feed{At: noon, Events: []data.Event{{ID: 1000, Token: 7, State: jobq.StateFailed, Attempts: 1}}})
	require.NotEqual(t, before, asked())
	before = asked()
	s.tell(Acted{&operator.Acted{Jobs: []operator.ActedJob{{ID: 1000, After: jobq.StateAvailable, Changed: true}}}})
	require.NotEqual(t, before, asked())
}

// What an event says takes the place of all that it makes out of date: the lease, the
// error and the progress of the run before. An event of a run that is known to be
// over, or of an earlier one, changes nothing.
func TestEventsLeaveNothingStale(t *testing.T) {
	t.Parallel()
	expires, asked := noon.Add(time.Minute), noon
	running := func() *jobq.Job {
		job := someJobs(1, jobq.StateRunning)[0]
		job.FinishedAt, job.LeaseToken, job.LeaseOwner, job.LeaseExpiresAt, job.CancelRequestedAt = nil, 7, "w1", &expires, &asked
		job.Progress, job.LastError = &jobq.Progress{Percent: 40, Stage: "rows", Message: "4 of 10"}, "smtp 421"
		return job
	}
	job := running()
	require.True(t, data.Event{ID: 1000, Token: 7, State: jobq.StateFailed, Attempts: 1}.Patch(job, noon))
	require.Equal(t, jobq.StateFailed, job.State)
	require.Empty(t, job.LastError, "it was that of the run before")
	require.Nil(t, job.LeaseExpiresAt)
	require.Nil(t, job.CancelRequestedAt)
	require.Nil(t, job.Progress)

	require.False(t, data.Event{ID: 1000, Token: 7, State: jobq.StateRunning, Percent: 50}.Patch(job, noon), "it is over")
	require.False(t, data.Event{ID: 1000, Token: 6, State: jobq.StateCompleted}.Patch(job, noon), "of an earlier run")
	require.Equal(t, jobq.StateFailed, job.State)

	require.True(t, data.Event{ID: 1000, Token: 8, State: jobq.StateRunning}.Patch(job, noon), "of a later one")
	require.Empty(t, job.LeaseOwner)
	require.Nil(t, job.Progress)

	job = running()
	require.True(t, data.Event{ID: 1000, Token: 7, State: jobq.StateRunning, Percent: 50, Stage: "rows"}.Patch(job, noon))
	require.Equal(t, "w1", job.LeaseOwner)
	require.Equal(t, &jobq.Progress{Percent: 50, Stage: "rows", At: noon}, job.Progress)

	job = running()
	require.True(t, data.Event{ID: 1000, Token: 7, State: jobq.StateRunning, Percent: 40, Stage: "rows"}.Patch(job, noon))
	require.Equal(t, &jobq.Progress{Percent: 40, Stage: "rows", Message: "4 of 10", At: noon}, job.Progress, "the message is of as much progress")

	job = running()
	job.RunAt = noon.Add(-time.Hour)
	require.True(t, data.Event{ID: 1000, Token: 7, State: jobq.StateScheduled, Attempts: 1}.Patch(job, noon))
	require.Empty(t, job.LeaseOwner)
	require.Equal(t, noon, job.RunAt, "when it is due is not known yet, and not an hour ago")
}
