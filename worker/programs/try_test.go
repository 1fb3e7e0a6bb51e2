package programs

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs/internal/breaker"
)

// Jobs whose handler cannot be reached go back at once, and do not wait in their
// slots until a process may be started again; of those that come when the handler
// may be there again, one waits, and no more are claimed meanwhile.
func TestStreamAwayDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kinds := []string{"k", "other"}
		p := &Programs{breaker: breaker.New(slog.New(slog.DiscardHandler), func(string) {})}
		try, err := p.breaker.Begin("k")
		require.NoError(t, err)
		require.Error(t, try.Failed(errors.New("no room")))
		pool := &streamPool{programs: p, kind: "k", startAt: time.Now().Add(time.Hour)} // some processes have died before
		var unreached *breaker.Error
		_, err = pool.take(t.Context())
		require.ErrorAs(t, err, &unreached)

		<-time.After(time.Second) // of the test's own clock: the pause is over
		require.Equal(t, kinds, p.breaker.Claimable(kinds))
		ctx, cutShort := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := pool.take(ctx)
			ended <- err
		}()
		synctest.Wait()
		require.Equal(t, []string{"other"}, p.breaker.Claimable(kinds))
		_, err = pool.take(t.Context())
		require.ErrorAs(t, err, &unreached)
		cutShort(worker.ErrDrained)
		require.ErrorIs(t, <-ended, worker.ErrDrained)
		require.Equal(t, kinds, p.breaker.Claimable(kinds), "another may try")
	})
}
