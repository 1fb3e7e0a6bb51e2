package worker_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// A job that began in one version of a program goes on in the next one. What the old version
// has done is known by its name: new steps before, between and after are done, and no old one
// again, also where their order has changed.
func TestStepsOfANewVersion(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	done := make(chan string, 10)
	version := func(before, after []string) worker.Handler[task] {
		return func(ctx context.Context, _ *worker.Job[task]) error {
			steps := func(names []string) error {
				for _, name := range names {
					_, err := jobq.Step(ctx, name, func(context.Context) (any, error) {
						done <- name
						return nil, nil
					})
					if err != nil {
						return err
					}
				}
				return nil
			}
			if err := steps(before); err != nil {
				return err
			}
			if _, err := jobq.WaitEvent[any](ctx, "shipped", 0); err != nil {
				return err
			}
			return steps(after)
		}
	}
	old := start(t, client, nil, version([]string{"reserve", "charge"}, []string{"mail"}))
	id := enqueue(t, client, 1, nil)
	awaitState(t, client, id, jobq.StateScheduled)
	require.NoError(t, old.drain())
	start(t, client, nil, version([]string{"check", "charge", "pack", "reserve"}, []string{"label", "mail"}))
	_, err := client.Emit(ctx, "shipped", nil)
	require.NoError(t, err)
	awaitState(t, client, id, jobq.StateCompleted)
	for _, want := range []string{"reserve", "charge", "check", "pack", "label", "mail"} {
		require.Equal(t, want, receive(t, done, want))
	}
	require.Empty(t, done)
}
