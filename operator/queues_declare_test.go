package operator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
)

// A program declares its queues whenever it starts: the first time all is set, then nothing is written, and the right
// to read is enough. A setting that is not declared stays, and so does the burst of a rate. An error names the queue, and
// what was declared before it stays.
func TestDeclareQueues(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, as := loginsServer(t, "worker", "viewer")
	owner := operator.New(client, "owner")
	first := operator.QueueDeclaration{
		Queue: "mail", KeyWeights: map[string]int{"b": 3, "a": 2, "none": 1},
		Change: operator.QueueChange{MaxRunning: new(3), Rate: &jobq.Rate{Jobs: 5, Period: time.Minute, Burst: 2}},
	}
	defaults := operator.QueueDeclaration{Queue: "other", Change: operator.QueueChange{Lease: new(jobq.DefaultLease), Rate: &jobq.Rate{}}}
	changed, err := owner.DeclareQueues(ctx, first, defaults)
	require.NoError(t, err)
	require.Equal(t, []operator.QueueDeclared{{"mail", "a", 2, 1}, {"mail", "b", 3, 2}, {"mail", "", 0, 3}}, changed)
	for _, same := range []operator.QueueDeclaration{
		first, defaults, {Queue: "mail"}, {Queue: "mail", Change: operator.QueueChange{Rate: &jobq.Rate{Jobs: 5, Period: time.Minute}}}, {Queue: "mail", KeyWeights: map[string]int{"b": 3}},
	} {
		for _, client := range as {
			changed, err = operator.New(client, "program").DeclareQueues(ctx, same)
			require.NoError(t, err)
			require.Empty(t, changed)
		}
	}
	other := operator.QueueDeclaration{Queue: "mail", Change: operator.QueueChange{Rate: &jobq.Rate{Jobs: 6, Period: time.Minute}}, KeyWeights: map[string]int{"a": 1}}
	_, err = operator.New(as["viewer"], "program").DeclareQueues(ctx, other)
	require.ErrorContains(t, err, "jobq_admin")
	changed, err = owner.DeclareQueues(ctx, other, operator.QueueDeclaration{Queue: "wrong", Change: operator.QueueChange{Lease: new(time.Duration)}}, first)
	require.Equal(t, []operator.QueueDeclared{{"mail", "a", 1, 4}, {"mail", "", 0, 5}}, changed)
	require.ErrorIs(t, err, jobq.ErrInvalid)
	var of *operator.QueueDeclarationError
	require.True(t, errors.As(err, &of))
	require.Equal(t, "wrong", of.Queue)
	for _, wrong := range []operator.QueueDeclaration{{Queue: "a\x00"}, {Queue: "a", KeyWeights: map[string]int{"k": 101}}, {Queue: "a", KeyWeights: map[string]int{"\xff": 2}}} {
		_, err = owner.DeclareQueues(ctx, wrong)
		require.ErrorIs(t, err, jobq.ErrInvalid)
	}
}
