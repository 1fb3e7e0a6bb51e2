package janitor_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
)

// setUpPooled is setUp for a client behind PgBouncer in transaction mode, with a way past
// it to the database of that URL; empty for its own. The fixture's pool is direct.
func setUpPooled(t *testing.T, wayURL string) (f *fixture, way *pgxpool.Config) {
	t.Helper()
	direct := pgtest.URL(t)
	if wayURL == "" {
		wayURL = direct
	}
	way, err := pgxpool.ParseConfig(wayURL)
	require.NoError(t, err)
	return &fixture{T: t, pool: pgtest.Connect(t, direct), log: &logBuffer{}}, way
}

// connect makes the fixture's client, with the way as it is by now.
func (f *fixture) connect(way *pgxpool.Config) {
	f.Helper()
	direct := f.pool.Config().ConnString()
	pooled := pgtest.StartPgBouncer(f, direct, map[string]string{"pool_mode": "transaction", "default_pool_size": "3"}).URL(f, direct)
	var err error
	f.client, err = jobq.NewClient(pgtest.Connect(f, pooled), &jobq.Config{Listen: way})
	require.NoError(f, err)
}

// With a way past the pooler a janitor leads, and hears of jobs that are due soon: its
// scans are far too seldom to find them.
func TestLeadsPastThePooler(t *testing.T) {
	t.Parallel()
	f, way := setUpPooled(t, "")
	f.connect(way)
	j, stop := f.start(janitor.Config{ScanInterval: time.Hour})
	require.Eventually(t, j.Leading, patience, 5*time.Millisecond, "the janitor does not lead")
	for n := range 3 {
		_, err := f.client.Enqueue(context.Background(), jobtest.Greeting{}, &jobq.EnqueueOptions{Delay: 100 * time.Millisecond})
		require.NoError(t, err)
		f.eventually("select count(*) from jobq.job where state = 'available'", n+1)
	}
	require.NotContains(t, f.log.String(), "mode any")
	stop()
	f.eventually("select count(*) from pg_locks l join pg_database d on d.oid = l.database where d.datname = current_database() and l.locktype = 'advisory'", 0)
}

// While the way past the pooler is closed, a janitor takes turns, and says so once. When
// the way is open again, it leads.
func TestTakesTurnsWhileTheWayIsClosed(t *testing.T) {
	t.Parallel()
	f, way := setUpPooled(t, "")
	var tries atomic.Int64
	var isOpen atomic.Bool
	way.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if isOpen.Load() {
			return nil
		}
		tries.Add(1)
		return errors.New("no route to the host")
	}
	f.connect(way)
	j, _ := f.start(janitor.Config{ScanInterval: 20 * time.Millisecond}, janitor.WayRetry(50*time.Millisecond))
	f.scheduled(3, "100 ms")
	f.eventually("select count(*) from jobq.job where state = 'available'", 3)
	require.Eventually(t, func() bool { return tries.Load() > 3 }, patience, 5*time.Millisecond)
	require.False(t, j.Leading())
	require.Equal(t, 1, strings.Count(f.log.String(), "no janitor can lead by the listen URL"), f.log.String())
	isOpen.Store(true)
	require.Eventually(t, j.Leading, patience, 5*time.Millisecond, "the janitor does not lead")
}

// A way that leads to another database is never taken: the janitor would do that one's
// work.
func TestLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	other := pgtest.Connect(t, url)
	elsewhere := &fixture{T: t, pool: other, log: &logBuffer{}}
	elsewhere.scheduled(1, "1 s")
	f, way := setUpPooled(t, url)
	f.connect(way)
	j, _ := f.start(janitor.Config{ScanInterval: 20 * time.Millisecond}, janitor.WayRetry(50*time.Millisecond))
	for n := range 3 {
		f.scheduled(1, "100 ms")
		f.eventually("select count(*) from jobq.job where state = 'available'", n+1)
	}
	require.Eventually(t, func() bool { return strings.Contains(f.log.String(), "does not lead to the pool's database") }, patience, 5*time.Millisecond)
	require.False(t, j.Leading())
	require.Equal(t, 1, elsewhere.number("select count(*) from jobq.job where state = 'scheduled'"))
}
