package stage

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/bench/child"
)

// A drain that does not come to its end says so.
func TestUnfinishedDrain(t *testing.T) {
	t.Parallel()
	stuck := &Process{ended: make(chan struct{}), latest: child.Line{Ran: 99}}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := AwaitRan(ctx, []*Process{stuck}, 100, time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	all, err := AwaitRan(context.Background(), []*Process{stuck}, 99, time.Minute)
	require.NoError(t, err)
	require.True(t, all)
}
