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

// setUpPooled is setUp for a client behind PgBouncer in transaction mode, with a direct
// connection to the database of that URL; empty for its own. The fixture's pool does without PgBouncer.
func setUpPooled(t *testing.T, listenURL string) (f *fixture, listen *pgxpool.Config) {
	t.Helper()
	direct := pgtest.URL(t)
	if listenURL == "" {
		listenURL = direct
	}
	listen, err := pgxpool.ParseConfig(listenURL)
	require.NoError(t, err)
	return &fixture{T: t, pool: pgtest.Connect(t, direct), log: &logBuffer{}}, listen
}

// connect makes the fixture's client, with the direct connection as it is configured by now.
func (f *fixture) connect(listen *pgxpool.Config) {
	f.Helper()
	direct := f.pool.Config().ConnString()
	pooled := pgtest.StartPgBouncer(f, direct, map[string]string{"pool_mode": "transaction", "default_pool_size": "3"}).URL(f, direct)
	var err error
	f.client, err = jobq.NewClient(pgtest.Connect(f, pooled), &jobq.Config{Listen: listen})
	require.NoError(f, err)
}

// With a direct connection a janitor leads, and hears of jobs that are due soon: its
// scans are far too seldom to find them.
func TestLeadsDirectly(t *testing.T) {
	t.Parallel()
	f, listen := setUpPooled(t, "")
	f.connect(listen)
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

// While the direct connection cannot be made, a janitor takes turns, and says so once. When
// it can, the janitor leads.
func TestTakesTurnsWithoutTheDirectConnection(t *testing.T) {
	t.Parallel()
	f, listen := setUpPooled(t, "")
	var tries atomic.Int64
	var isOpen atomic.Bool
	listen.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if isOpen.Load() {
			return nil
		}
		tries.Add(1)
		return errors.New("no route to the host")
	}
	f.connect(listen)
	j, _ := f.start(janitor.Config{ScanInterval: 20 * time.Millisecond}, janitor.DirectRetry(50*time.Millisecond))
	f.scheduled(3, "100 ms")
	f.eventually("select count(*) from jobq.job where state = 'available'", 3)
	require.Eventually(t, func() bool { return tries.Load() > 3 }, patience, 5*time.Millisecond)
	require.False(t, j.Leading())
	require.Equal(t, 1, strings.Count(f.log.String(), "no janitor can lead by the listen URL"), f.log.String())
	isOpen.Store(true)
	require.Eventually(t, j.Leading, patience, 5*time.Millisecond, "the janitor does not lead")
}

// A direct connection to another database is never used: the janitor would do that one's
// work.
func TestLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	other := pgtest.Connect(t, url)
	elsewhere := &fixture{T: t, pool: other, log: &logBuffer{}}
	elsewhere.scheduled(1, "1 s")
	f, listen := setUpPooled(t, url)
	f.connect(listen)
	j, _ := f.start(janitor.Config{ScanInterval: 20 * time.Millisecond}, janitor.DirectRetry(50*time.Millisecond))
	for n := range 3 {
		f.scheduled(1, "100 ms")
		f.eventually("select count(*) from jobq.job where state = 'available'", n+1)
	}
	require.Eventually(t, func() bool { return strings.Contains(f.log.String(), "does not lead to the pool's database") }, patience, 5*time.Millisecond)
	require.False(t, j.Leading())
	require.Equal(t, 1, elsewhere.number("select count(*) from jobq.job where state = 'scheduled'"))
}
