package janitor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
)

// A job that is committed long after its time does not wait for the next scan,
// which is an hour away here, there being no leases to look for: a leader hears of it, and a janitor in mode any
// looks from the start every now and then.
func TestLateJobsWaitForNoScan(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.scheduled(1, "0 s")
			j, _ := f.start(janitor.Config{Mode: mode, ScanInterval: time.Hour, NoReap: true})
			f.eventually("select count(*) from jobq.pending where position is null", 0)
			if mode == janitor.ModeLeader {
				require.True(t, j.Leading())
				f.exec("select jobq.enqueue('soon', run_at => clock_timestamp() + interval '50 ms')")
				f.eventually("select count(*) from jobq.pending where position is null", 0)
			}
			for _, late := range map[janitor.Mode][]string{janitor.ModeLeader: {"5 s", "1 hour"}, janitor.ModeAny: {"5 s"}}[mode] {
				f.exec("insert into jobq.pending (kind, run_at) values ('late', now() + interval '2 hours')")
				f.exec(`with late as (update jobq.pending set run_at = now() - $1::interval where position is null returning run_at)
					select pg_notify(jobq.channel('due'), extract(epoch from run_at)::text) from late`, late)
				f.eventually("select count(*) from jobq.pending where position is null", 0)
			}
		})
	}
}

// A job whose transaction has looked before the janitor announced that it sleeps, and so does not notify, is found after its
// commit without a scan.
func TestFindsWhatDidNotNotify(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f, questions := setUpTraced(t, nil)
	tx, err := f.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "select jobq.enqueue('soon', run_at => clock_timestamp() + interval '50 ms')")
	require.NoError(t, err)
	f.start(janitor.Config{ScanInterval: time.Hour, NoReap: true})
	require.Eventually(t, func() bool { return questions.times("SleepAnnounce") > 0 && questions.times("StillOpen") > 3 }, patience, time.Millisecond)
	require.NoError(t, tx.Commit(ctx))
	f.eventually("select count(*) from jobq.pending where position is not null", 1)
}

// promotions keeps when each step of promotion was sent that reaches a job which
// was to start then.
type promotions struct {
	runAt time.Time
	mu    sync.Mutex
	sent  []time.Time
}

func (p *promotions) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (p *promotions) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (p *promotions) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, query := range data.Batch.QueuedQueries {
		if len(query.Arguments) == 3 { // JobPromote, from there
			if from := query.Arguments[0].(pgtype.Timestamptz); from.InfinityModifier == pgtype.NegativeInfinity || !from.Time.After(p.runAt) {
				p.sent = append(p.sent, time.Now())
			}
		}
	}
	return ctx
}

func (p *promotions) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (p *promotions) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (p *promotions) times() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// A due job that somebody has locked is tried less and less often: each try walks
// through the index entries of all jobs promoted since. Others are promoted
// meanwhile, and that one soon after it is free, though the next scan is an hour away.
func TestLockedJobIsTriedLessOften(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			f := setUp(t)
			f.scheduled(1, "0 s")
			seen := &promotions{}
			require.NoError(t, f.pool.QueryRow(ctx, "select run_at from jobq.pending").Scan(&seen.runAt))
			config := f.pool.Config()
			config.ConnConfig.Tracer = seen
			client, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
			require.NoError(t, err)
			f.client = client
			locker := f.session("locker")
			_, err = locker.Exec(ctx, "begin; select from jobq.pending for update")
			require.NoError(t, err)
			f.start(janitor.Config{Mode: mode, ScanInterval: time.Hour, NoReap: true})
			const tries = 8
			require.Eventually(t, func() bool { return len(seen.times()) >= tries }, patience, time.Millisecond)
			// Twice to see that it is locked, then after 20 ms, 40 ms, to 640 ms.
			sent := seen.times()
			require.GreaterOrEqual(t, sent[tries-1].Sub(sent[1]), 1200*time.Millisecond)

			f.exec("select jobq.enqueue('soon', run_at => clock_timestamp() + interval '50 ms')")
			f.eventually("select count(*) from jobq.pending where position is null", 1)
			_, err = locker.Exec(ctx, "rollback")
			require.NoError(t, err)
			f.eventually("select count(*) from jobq.pending where position is null", 0)
		})
	}
}
