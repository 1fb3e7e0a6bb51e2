package janitor_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
)

// scans keeps what the janitor's scans of lease took, and how far ahead each
// allowed the next to be.
type scans struct {
	mu     sync.Mutex
	took   []time.Duration
	ahead  []time.Duration
	others int // questions without one
}

type scanStarted struct{}

func (s *scans) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !strings.HasPrefix(data.SQL, "-- name: NextDue ") {
		return ctx
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if scan := data.Args[4].(bool); !scan {
		s.others++
		return ctx
	}
	s.ahead = append(s.ahead, time.Duration(data.Args[3].(int64))*time.Millisecond)
	return context.WithValue(ctx, scanStarted{}, time.Now())
}

func (s *scans) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if at, ok := ctx.Value(scanStarted{}).(time.Time); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.took = append(s.took, time.Since(at))
	}
}

func (s *scans) count() (scans, others int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.took), s.others
}

// scanned is a database whose janitors are watched.
func scanned(t *testing.T) (*fixture, *scans) {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	seen := &scans{}
	config.ConnConfig.Tracer = seen
	pool := pgtest.ConnectConfig(t, config)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	return &fixture{T: t, client: client, pool: pool, log: &logBuffer{}}, seen
}

// Jobs that come due do not make the janitor read running, with whatever dead
// rows it has.
func TestDueJobsCostNoScan(t *testing.T) {
	t.Parallel()
	const jobs = 50
	f, seen := scanned(t)
	f.exec("insert into jobq.pending (kind, run_at) select 'due', now() + i * interval '10 ms' from generate_series(1, $1) i", jobs)
	f.start(janitor.Config{ScanInterval: time.Hour})
	f.eventually("select count(*) from jobq.job where state = 'available'", jobs)
	for more := 1; more <= 3; more++ { // each needs a look of its own, however late the first one was
		f.exec("insert into jobq.pending (kind, run_at) values ('due', now() + interval '50 ms')")
		f.eventually("select count(*) from jobq.job where state = 'available'", jobs+more)
	}
	scans, others := seen.count()
	require.Equal(t, 1, scans)
	require.GreaterOrEqual(t, others, 3)
}

// The longer a scan takes, the longer the next one waits.
func TestScansTakeAShare(t *testing.T) {
	t.Parallel()
	f, seen := scanned(t)
	f.start(janitor.Config{ScanInterval: time.Millisecond})
	const enough = 10
	require.Eventually(t, func() bool { scans, _ := seen.count(); return scans >= enough }, patience, time.Millisecond)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for i, took := range seen.took[:enough-1] {
		require.GreaterOrEqual(t, seen.ahead[i+1], (19 * took).Truncate(time.Millisecond))
	}
}
