package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/sleep"
)

// It sleeps for the time that it was given, and less only when the context ends.
func TestFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		require.NoError(t, sleep.For(ctx, time.Second))
		require.Equal(t, time.Second, time.Since(began))
		require.NoError(t, sleep.For(ctx, -time.Second))
		require.Equal(t, context.DeadlineExceeded, sleep.For(ctx, time.Hour))
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, context.DeadlineExceeded, sleep.For(ctx, 0), "the context has ended")
	})
}
