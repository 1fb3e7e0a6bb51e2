package monitor_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
)

// The last steps of a job are in the order in which it came to them, and no more than
// were asked for.
func TestLastSteps(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := planted{jobtest.NewWorker(t)}
	id := p.enqueue(jobq.EnqueueOptions{})
	job := p.Claim("q", 1)[0]
	for _, name := range []string{"c", "b", "a"} {
		p.exec("select jobq.step_put($1, $2, $3, '7')", id, jobtest.RunToken(job), name)
	}
	names := func(steps []monitor.Step, err error) (names []string) {
		require.NoError(t, err)
		for _, step := range steps {
			names = append(names, step.Name)
		}
		return names
	}
	require.Equal(t, []string{"c", "b", "a"}, names(p.Monitor.Steps(ctx, id)))
	require.Equal(t, []string{"c", "b", "a"}, names(p.Monitor.LastSteps(ctx, id, 10_000)))
	require.Equal(t, []string{"b", "a"}, names(p.Monitor.LastSteps(ctx, id, 2)))
	require.Empty(t, names(p.Monitor.LastSteps(ctx, id+1, 2)))
	for _, limit := range []int{0, 10_001} {
		_, err := p.Monitor.LastSteps(ctx, id, limit)
		require.ErrorIs(t, err, jobq.ErrInvalid)
	}
	_, err := p.Monitor.LastSteps(ctx, 0, 1)
	require.ErrorIs(t, err, jobq.ErrInvalid)
}
