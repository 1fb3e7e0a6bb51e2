package worker

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/sleep"
)

// workWaits is a database that answers each question with yes: there is work.
type workWaits struct{ db.DBTX }

func (workWaits) QueryRow(context.Context, string, ...any) pgx.Row { return yes{} }

type yes struct{}

func (yes) Scan(values ...any) error {
	*values[0].(*bool) = true
	return nil
}

// A worker that is to end when nothing is left, and may not take what there is, asks for heartbeats ever
// more rarely: 14 in an hour beside the usual 360. When it has claimed something, it asks again at once.
func TestIdleBatchBeatsSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{queries: db.New(workWaits{}), claims: []string{"k"}, beatSoon: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var beats []time.Duration
		begun := time.Now()
		go w.awaitEmpty(ctx)
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-w.beatSoon:
					beats = append(beats, time.Since(begun).Truncate(time.Second))
				}
			}
		}()
		require.NoError(t, sleep.For(ctx, time.Hour))
		synctest.Wait()
		require.Len(t, beats, 14, "%s", beats)
		require.Zero(t, beats[0])
		w.counts.claimed.Add(1)
		require.NoError(t, sleep.For(ctx, time.Second))
		synctest.Wait()
		require.Len(t, beats, 17, "%s", beats)
	})
}

// mayNot is a database in which the worker's role lacks a right.
type mayNot struct{ db.DBTX }

func (mayNot) QueryRow(context.Context, string, ...any) pgx.Row { return no{} }

type no struct{}

func (no) Scan(...any) error {
	return &pgconn.PgError{Code: "42501", Message: "permission denied for table dependency"}
}

// A worker that cannot find out whether work is left does not end, and says why.
func TestBatchTellsThatItCannotLook(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := &Worker{queries: db.New(mayNot{}), claims: []string{"k"}, log: slog.New(slog.NewTextHandler(&log, nil)), schema: db.SchemaOf(db.DefaultSchema, db.SessionsOwn)}
	require.True(t, w.hasWork(t.Context()))
	require.Contains(t, log.String(), "permission denied for table dependency")
	log.Reset()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	w.hasWork(stopped)
	require.Empty(t, log.String())
}
