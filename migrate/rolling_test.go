package migrate_test

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/sql/migrations"
	"github.com/jobq-dev/jobq/worker"
)

// patience ends a test that hangs: no promise is about it.
const patience = 2 * time.Minute

// later is the migrations of this build and more after them, as a later jobq has
// them: to it, this build is an earlier program.
func later(t *testing.T, more ...string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(migrations.FS, "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		content, err := fs.ReadFile(migrations.FS, name)
		require.NoError(t, err)
		files[name] = &fstest.MapFile{Data: content}
	}
	for i, sql := range more {
		name := fmt.Sprintf("%03d_later", migrations.Latest()+1+i)
		files[name+".up.sql"] = &fstest.MapFile{Data: []byte(sql)}
		files[name+".down.sql"] = &fstest.MapFile{Data: []byte("select 1;")}
	}
	return files
}

// additive are three migrations beside which programs of this build go on. Each changes
// one of the tables that are always in use: with two, it could deadlock with a claim.
func additive() []string {
	from := fmt.Sprintf("-- jobq:compatible-from %d\nset local lock_timeout = '5s';\n", migrations.Latest())
	// A migration that adds a column of a job replaces the function that makes such rows: sql/schema/move.sql.
	with := func(function, column string) string {
		return fmt.Sprintf("do $do$ begin execute regexp_replace(pg_get_functiondef('jobq.%s'::regproc), ';\\s*END\\s*$', ', %s; END'); end $do$;\n", function, column)
	}
	return []string{
		from + "alter table jobq.pending add column later text;\n" + with("pending_of", "null::text") + `create table jobq.later (id bigint primary key, noted_at timestamptz not null default now());
create function jobq.later_noted() returns bigint language sql stable as $$ select count(*) from jobq.later $$;`,
		from + "alter table jobq.run add column later integer not null default 0;\n" + with("run_of", "0"),
		from + "alter table jobq.queue add column later boolean not null default false;",
	}
}

// breaking is a migration that programs of this build do not survive.
const breaking = "alter table jobq.pending rename column priority to urgency;"

type tick struct {
	N int64 `json:"n"`
}

func (tick) Kind() string { return "tick" }

// system is a queue at work: workers, a janitor, and somebody who inserts.
type system struct {
	*testing.T
	pool     *pgxpool.Pool
	client   *jobq.Client
	inserted atomic.Int64
	ran      atomic.Int64
	// longest is how long the slowest insert took; read it when the inserts have ended.
	longest time.Duration
}

// work starts a worker, and returns how it ends, and what ends it.
func (s *system) work() (ended <-chan error, stop func()) {
	s.Helper()
	w, err := worker.New(s.client, &worker.Config{NoJanitor: true, Logger: quiet})
	require.NoError(s, err)
	require.NoError(s, worker.Handle(w, func(context.Context, *worker.Job[tick]) error {
		s.ran.Add(1)
		return nil
	}, nil))
	return s.runUntilStopped(w.Run)
}

// runUntilStopped runs what works until its context ends, which is at the end of the
// test at the latest.
func (s *system) runUntilStopped(run func(context.Context) error) (ended <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	end, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		end <- run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	s.Cleanup(stop)
	return end, stop
}

// insert adds jobs, one after the other, of which few wait, until it is stopped.
func (s *system) insert() (stop func()) {
	const ahead = 100
	ended, end := s.runUntilStopped(func(ctx context.Context) error {
		for ctx.Err() == nil {
			if s.inserted.Load() > s.ran.Load()+ahead {
				_ = sleep.For(ctx, time.Millisecond) // the loop looks at the context
				continue
			}
			began := time.Now()
			if _, err := s.client.Enqueue(context.WithoutCancel(ctx), tick{s.inserted.Load()}, nil); err != nil {
				return err
			}
			s.longest = max(s.longest, time.Since(began))
			s.inserted.Add(1)
		}
		return nil
	})
	return sync.OnceFunc(func() {
		end()
		require.NoError(s, <-ended, "an insert has failed")
	})
}

// moreRun waits until that many more jobs have run.
func (s *system) moreRun(count int64) {
	s.Helper()
	until := s.ran.Load() + count
	require.Eventually(s, func() bool { return s.ran.Load() >= until }, patience, waitPoll, "jobs no longer run")
}

// hurry makes workers look at the tables soon, as a hint that somebody watches does.
func (s *system) hurry() {
	_, err := s.pool.Exec(context.Background(), "select pg_notify(jobq.channel('watch'), '')")
	require.NoError(s, err)
}

// beat waits until so many workers have looked at the tables since the last migration.
func (s *system) beat(workers int) {
	s.Helper()
	require.Eventually(s, func() bool {
		s.hurry()
		return number(s.T, s.pool, `select count(*) from jobq.worker w
			where w.heartbeat_at > (select max(m.created_at) from jobq.jobq_migration m)`) == workers
	}, patience, 100*time.Millisecond, "the workers do not look at the tables")
}

// Programs of this build work on while a later jobq migrates, under load, and beside
// its tables: those that run and those that start, and no insert fails. When a
// migration comes with which they do not work, they end, and others do not start.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := &system{T: t, pool: pgtest.Pool(t)}
	var err error
	s.client, err = jobq.NewClient(s.pool, nil)
	require.NoError(t, err)
	j, err := janitor.New(s.client, &janitor.Config{Logger: quiet})
	require.NoError(t, err)
	_, stopJanitor := s.runUntilStopped(j.Run)
	first, stopFirst := s.work()
	second, stopSecond := s.work()
	stopInserts := s.insert()
	s.moreRun(300)

	more := additive()
	result, err := migrate.Up(ctx, s.pool, migrate.WithFiles(migrate.Config{Logger: quiet}, later(t, more...)))
	require.NoError(t, err)
	require.Len(t, result.Versions, 3)
	s.moreRun(300)
	s.beat(2)
	require.Empty(t, first, "a worker has ended")
	require.Empty(t, second, "a worker has ended")

	require.NoError(t, s.client.Check(ctx))
	third, _ := s.work()
	stopFirst()
	require.NoError(t, <-first)
	stopSecond()
	require.NoError(t, <-second)
	s.moreRun(300)
	stopInserts()
	t.Logf("the slowest of %d inserts took %s", s.inserted.Load(), s.longest)
	require.Eventually(t, func() bool {
		return number(t, s.pool, "select count(*) from jobq.job where state = 'completed'") == int(s.inserted.Load())
	}, patience, waitPoll, "jobs are left")
	stopJanitor()

	_, err = migrate.Up(ctx, s.pool, migrate.WithFiles(migrate.Config{Logger: quiet}, later(t, append(more, breaking)...)))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		s.hurry()
		return len(third) > 0
	}, patience, 100*time.Millisecond, "the worker goes on beside tables with which it does not work")
	require.ErrorIs(t, <-third, jobq.ErrNewerSchema)
	require.ErrorIs(t, s.client.Check(ctx), jobq.ErrNewerSchema)
	fourth, _ := s.work()
	require.ErrorIs(t, <-fourth, jobq.ErrNewerSchema)
}

// Beside the compatible tables of a later jobq there is nothing to migrate, as when an
// earlier program is started again, but nothing to take back either: this build does
// not know how.
func TestCompatibleNewerSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	_, err := migrate.Up(ctx, pool, migrate.WithFiles(migrate.Config{Logger: quiet}, later(t, additive()...)))
	require.NoError(t, err)
	latest := migrations.Latest()
	for _, config := range []*migrate.Config{{}, {DryRun: true}, {Target: 1}} {
		config.Logger = quiet
		result, err := migrate.Up(ctx, pool, config)
		require.NoError(t, err)
		require.Equal(t, &migrate.Result{Direction: "up", Versions: []migrate.Version{}}, result)
		_, err = migrate.Down(ctx, pool, config)
		require.ErrorIs(t, err, migrate.ErrNewerSchema)
		require.ErrorContains(t, err, "take it back with the jobq that has migrated it")
	}
	status, err := migrate.GetStatus(ctx, pool, &migrate.Config{Logger: quiet})
	require.NoError(t, err)
	require.Equal(t, [3]int{latest + 3, latest, latest}, [3]int{status.Current, status.Latest, status.CompatibleFrom})
	require.False(t, status.Pending())
	require.Equal(t, latest, status.Versions[latest+1].CompatibleFrom)

	down := migrate.WithFiles(migrate.Config{Logger: quiet, Target: latest + 1}, later(t, additive()...))
	_, err = migrate.Down(ctx, pool, down)
	require.NoError(t, err)
	require.Equal(t, latest+1, number(t, pool, "select max(version) from jobq.jobq_migration"))
}
