package tui

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/screen"
)

// someSteps are those of a job that has charged a card, has slept, and waits for an event.
func someSteps() []monitor.Step {
	at := func(before time.Duration) *time.Time { return new(noon.Add(-before)) }
	return []monitor.Step{
		{Name: "charge", Type: monitor.StepPlain, Number: 1, Attempts: 2, StartedAt: *at(26 * time.Hour), FinishedAt: at(26*time.Hour - 1200*time.Millisecond), Result: json.RawMessage(`{"receipt":4711,"note":"paid"}`), ResultBytes: 40},
		{Name: "night", Type: monitor.StepSleep, Number: 2, Attempts: 1, StartedAt: *at(26*time.Hour - 2*time.Second), FinishedAt: at(2 * time.Hour), WakeAt: at(2 * time.Hour), Result: json.RawMessage("null"), ResultBytes: 4},
		{Name: "sealed", Type: monitor.StepPlain, Number: 3, Attempts: 1, StartedAt: *at(2 * time.Hour), FinishedAt: at(2*time.Hour - time.Second), Result: json.RawMessage(`{"$jobq":"enc","key":"k7","v":"AAAA"}`), ResultBytes: 30},
		{Name: "long", Type: monitor.StepPlain, Number: 4, Attempts: 1, StartedAt: *at(time.Hour), FinishedAt: at(time.Hour - time.Second), ResultBytes: 70_000},
		{Name: "answered\x1b[2J", Type: monitor.StepEvent, Number: 5, Attempts: 1, StartedAt: *at(40 * time.Minute), FinishedAt: at(30 * time.Minute), WakeAt: at(30 * time.Minute), TimedOut: true, Result: json.RawMessage("null"), ResultBytes: 4},
		{Name: "paid order 4711", Type: monitor.StepEvent, Number: 6, Attempts: 1, StartedAt: *at(20 * time.Minute), WakeAt: at(-72 * time.Hour)},
	}
}

// openSteps shows a job that waits for an event.
func (b *bench) openSteps() {
	b.fake.steps = someSteps()
	job := b.fake.jobs[1]
	job.State, job.FinishedAt, job.Attempts, job.LastError, job.RunAt = jobq.StateScheduled, nil, 0, "", noon.Add(72*time.Hour)
	b.press(Palette, fmt.Sprintf("job %d", job.ID), Accept)
}

// An operator looks at the steps of a job, chooses one, reads what will be done again and
// what is forgotten, and says yes. Undo takes the requeue back.
func TestRequeueFromStep(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.openSteps()
	id := b.fake.jobs[1].ID
	require.Contains(t, b.plain(), "Steps 6")
	b.press(FromStep)
	require.IsType(t, &overlay.Choice{}, b.overlay)
	b.press("3")
	for _, part := range []string{
		fmt.Sprintf("requeue job %d, scheduled, from step sealed", id), "does again: sealed, long, answered␛[2J, paid order 4711",
		"what these steps have stored; u brings the job back, but not that", "the wait for the event paid order 4711", fmt.Sprintf("jobq requeue %d --from-step sealed", id),
	} {
		require.Contains(t, b.plain(), part)
	}
	require.Empty(t, b.fake.written)
	b.tick(time.Second)
	b.press(Yes)
	require.Equal(t, []string{fmt.Sprintf("requeue %d:scheduled/5 from sealed", id)}, b.fake.written)
	require.Contains(t, b.toast, fmt.Sprintf("requeue job %d: it is available, and does 4 steps again   u undo", id))
	b.tick(2 * time.Second)
	require.Contains(t, b.plain(), "Steps 2")
	b.press(Undo)
	require.Equal(t, "undo 1", b.fake.written[1])
}

// Where nothing can be requeued from a step, the key says why. In production the number of
// steps is typed.
func TestRequeueFromStepRefused(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Open, FromStep)
	require.Contains(t, b.toast, "the job has no durable steps")
	b.openSteps()
	b.fake.jobs[1].State = jobq.StateRunning
	b.tick(2 * time.Second)
	b.press(FromStep)
	require.Contains(t, b.toast, "the job is running")
	b.fake.jobs[1].State = jobq.StateFailed
	b.env.confirm = true
	b.tick(2 * time.Second)
	b.press(FromStep, Accept)
	b.tick(time.Second)
	b.press(Yes, Accept)
	require.Empty(t, b.fake.written)
	b.press("backspace", "1", Accept)
	require.Len(t, b.fake.written, 1)
}

// Of many steps the page and the choice have the last ones, and say where all are.
func TestManySteps(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.openSteps()
	for i := range 200 {
		b.fake.steps = append(b.fake.steps, monitor.Step{Name: fmt.Sprintf("item %d", i), Type: monitor.StepPlain, Number: 7 + i, Attempts: 1, StartedAt: noon, FinishedAt: &noon})
	}
	b.tick(2 * time.Second)
	require.Contains(t, b.plain(), fmt.Sprintf("Steps, the last 6; jobq show %d lists all", b.fake.jobs[1].ID))
	require.Contains(t, b.plain(), "item 199")
	require.Contains(t, b.plain(), "item 194")
	require.NotContains(t, b.plain(), "item 193")
	require.Len(t, b.selected().Steps, screen.StepsMax)
	b.press(FromStep)
	require.Contains(t, b.plain(), "There may be earlier ones")
	b.press(Top, Accept)
	require.Contains(t, b.plain(), "does again: item 100, item 101")
	require.Contains(t, b.plain(), "and 92 more")
}

// Plain mode tells the steps in the words of `jobq show`.
func TestStepsTold(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.env.plain = true
	b.restyle()
	b.openSteps()
	told := b.current().Told()
	require.Contains(t, told, `step 1 charge: done 2026-11-20T12:02:32Z in 1.2s, begun 2 times  {"receipt":4711,"note":"paid"}`)
	require.Contains(t, told, "step 2 night: slept until 2026-11-21T12:02:31Z")
	require.Contains(t, told, "step 3 sealed: done 2026-11-21T12:02:32Z in 1.0s  encrypted with key k7")
	require.Contains(t, told, "step 6 paid order 4711: waits for its event until 2026-11-24T14:02:31Z")
}

// A requeue with dependents asks, says as which command it can be done, and then how many jobs it came to, and which stays
// cancelled.
func TestRequeueWithDependents(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	job := b.fake.jobs[1]
	job.State = jobq.StateFailed
	b.press(Palette, fmt.Sprintf("job %d", job.ID), Accept, WithDependents)
	require.Contains(t, b.plain(), fmt.Sprintf("requeue job %d, failed, with dependents", job.ID))
	require.Contains(t, b.plain(), fmt.Sprintf("jobq requeue %d --with-dependents", job.ID))
	require.Empty(t, b.fake.written)
	b.tick(time.Second)
	b.press(Yes)
	require.Equal(t, []string{fmt.Sprintf("requeue %d:failed/%d with dependents", job.ID, job.LeaseToken)}, b.fake.written)
	require.Contains(t, b.toast, fmt.Sprintf("requeue job %d: it is available, with 2 dependents, 1 stay cancelled: job 99: it also waits", job.ID))
	b.press(Undo)
	require.Equal(t, "undo 1", b.fake.written[1])
}
