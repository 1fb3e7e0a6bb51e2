package janitor_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/janitor"
)

// stuck stops a janitor in the middle of a pass, with the lock in its hands,
// as a lost host or SIGSTOP would, until the test ends.
type stuck struct {
	end    context.Context
	locked atomic.Bool
	inPass atomic.Bool
}

func (s *stuck) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	if s.locked.Load() {
		s.inPass.Store(true)
		<-s.end.Done()
	}
	s.locked.Store(strings.Contains(query.SQL, "pg_try_advisory_xact_lock"))
	return ctx
}

func (s *stuck) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A janitor in mode any that is stuck in its pass keeps others from theirs only
// until the server ends its transaction.
func TestServerEndsAStuckPass(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := &stuck{end: t.Context()}
	config := f.pool.Config()
	config.ConnConfig.Tracer = first
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	other := *f
	other.client, err = jobq.NewClient(pool, nil)
	require.NoError(t, err)

	f.exec("select jobq.enqueue('due', run_at => now() + interval '10 ms')")
	configAny := janitor.Config{Mode: janitor.ModeAny, ScanInterval: 20 * time.Millisecond, LeaderTTL: 200 * time.Millisecond, LeaderRenew: 100 * time.Millisecond}
	other.start(configAny)
	require.Eventually(t, first.inPass.Load, patience, time.Millisecond)
	f.start(configAny)
	f.eventually("select count(*) from jobq.job where state = 'available' and kind = 'due'", 1)
}
