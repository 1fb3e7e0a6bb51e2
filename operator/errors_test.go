package operator_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// A refusal of one job reads as the error and the reason, once each; an action that
// fails as a whole names the operation first.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	running := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "runs"})
	require.NoError(t, pgtest.MakeRunning(ctx, client.Pool(), running))
	ended := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "taken"})
	_, err := client.Cancel(ctx, ended)
	require.NoError(t, err)
	jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "taken"})
	ana := operator.New(client, "ana")
	for want, err := range map[string]error{
		"no such job":                      jobtest.Requeue(client, 9999),
		"clone job 9999: no such job":      jobtest.ErrorOf(ana.Clone(ctx, 9999, operator.JobChange{})),
		"undo action 9999: no such action": jobtest.ErrorOf(ana.Undo(ctx, 9999)),
		"conflict: job 1 is running":       jobtest.Delete(client, running),
		"unique key is held by another job: unique_key 'taken' of kind 'greeting' is held by unfinished job 3": jobtest.Requeue(client, ended),
		"edit: invalid value: max_attempts must be 1 to 32767, not 0":                                          jobtest.ErrorOf(ana.Edit(ctx, operator.JobChange{MaxAttempts: new(0)}, operator.Target{ID: ended})),
	} {
		require.EqualError(t, err, want)
	}
}
