package await

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/sleep"
)

// fakeStatements are a session's statements; each calls a function.
type fakeStatements struct {
	endRead func(ids []int64, rowCount int32) ([]db.EndReadRow, error)
	await   func(params db.AwaitParams) (known bool, err error)
	end     func(ctx context.Context) (isDone bool, err error)
}

func (f fakeStatements) EndRead(_ context.Context, ids []int64, rowCount int32) ([]db.EndReadRow, error) {
	return f.endRead(ids, rowCount)
}

func (f fakeStatements) Await(_ context.Context, params db.AwaitParams) (bool, error) {
	return f.await(params)
}

func (f fakeStatements) AwaitEnd(ctx context.Context, _ int64) (bool, error) { return f.end(ctx) }

// newTestSession returns a session without goroutines, as if it listened.
func newTestSession(queries statements) *session {
	s := &session{jobs: jobs{byID: make(map[int64]*job), arriving: true}, queries: queries, wake: make(chan struct{}, 1), isListening: true, lookIDs: batchMax, lookRows: rowsMax}
	s.lookedAt = time.Now()
	return s
}

// While there is a look to make at any time, new jobs are announced, those are looked at
// of which nothing was heard for long, and the lease is renewed. Method: each look is
// followed by a notification for the next one, up to so many.
func TestLooksLeaveRoom(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const busy, quiet = 1, 2
	var s *session
	var looks int
	var isAnnounced, isPolled, isRenewed bool
	s = newTestSession(fakeStatements{
		endRead: func(ids []int64, _ int32) ([]db.EndReadRow, error) {
			isPolled = isPolled || slices.Contains(ids, quiet)
			if isAnnounced {
				s.renewedAt = time.Now().Add(-renewEvery)
			}
			if looks++; looks == 50 || isAnnounced && isPolled && isRenewed {
				cancel()
			}
			s.notified("1")
			return nil, nil
		},
		await: func(params db.AwaitParams) (bool, error) {
			isAnnounced = isAnnounced || slices.Contains(params.Jobs, busy)
			isRenewed = isRenewed || len(params.Jobs) == 0
			return true, nil
		},
	})
	s.jobs.join(quiet, true, time.Now().Add(-2*pollMin))
	s.toAnnounce = nil // it was announced long ago
	s.join(busy, false)
	ticks := make(chan time.Time, 1)
	ticks <- time.Now()
	s.tick = ticks
	s.work(ctx)
	require.True(t, isAnnounced, "announced")
	require.True(t, isPolled, "polled")
	require.True(t, isRenewed, "renewed")
}

// While no job ends, ten thousand cost a process less than a statement a second: its looks,
// its renewals, and the pings of its connection that listens. No job is looked at more
// rarely for that. Method: a clock of their own; the jobs were joined one after another.
func TestIdleSendsLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many, span, pingEvery = 10_000, 4 * time.Minute, 5 * time.Second
		var statements atomic.Int64
		lookedAt := make(map[int64]time.Time, many) // only the session's goroutine has it
		var longest time.Duration
		s := newTestSession(fakeStatements{
			endRead: func(ids []int64, _ int32) ([]db.EndReadRow, error) {
				statements.Add(1)
				for _, id := range ids {
					if last, known := lookedAt[id]; known {
						longest = max(longest, time.Since(last))
					}
					lookedAt[id] = time.Now()
				}
				return nil, nil
			},
			await: func(db.AwaitParams) (bool, error) {
				statements.Add(1)
				return true, nil
			},
			end: func(context.Context) (bool, error) { return true, nil },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.run(ctx)
		}()
		pass := func(span time.Duration) { require.NoError(t, sleep.For(ctx, span)) }
		for id := range int64(many) {
			s.join(id+1, true)
			pass(4 * time.Millisecond)
		}
		pass(2 * time.Minute)
		before := statements.Load()
		pass(span)
		sent := statements.Load() - before + int64(span/pingEvery)
		cancel()
		<-done
		require.Len(t, lookedAt, many)
		require.LessOrEqual(t, float64(sent)/span.Seconds(), 1.0, "statements a second")
		require.Greater(t, float64(sent)/span.Seconds(), 0.8, "all are counted")
		require.LessOrEqual(t, longest, pollMax+2*time.Second)
	})
}

// The announcement that comes so late that others may have deleted what was announced
// before has it all said again. A third of the lease may have gone before it was renewed.
func TestLateAnnouncement(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		since   time.Duration
		isKnown bool
		want    int
	}{
		{since: lease / 2, isKnown: true},
		{since: lease*2/3 + time.Second, isKnown: true, want: 2},
		{since: lease / 2, want: 2},
	} {
		s := newTestSession(fakeStatements{await: func(db.AwaitParams) (bool, error) { return test.isKnown, nil }})
		for id := range int64(2) {
			s.join(id, true)
		}
		ids, _ := s.takeAnnouncements()
		s.isAnnounced(ids)
		s.renewedAt = time.Now().Add(-test.since)
		require.True(t, s.tell(t.Context()))
		ids, _ = s.takeAnnouncements()
		require.Len(t, ids, test.want, "%+v", test)
	}
}

// A look that took too long is followed by smaller ones, down to one job, and quick ones
// by larger ones again.
func TestLooksThatTakeTooLong(t *testing.T) {
	t.Parallel()
	var ids, rows int
	var err error
	s := newTestSession(fakeStatements{endRead: func(asked []int64, rowCount int32) ([]db.EndReadRow, error) {
		ids, rows = len(asked), int(rowCount)
		return nil, err
	}})
	for id := range int64(batchMax) {
		s.jobs.join(id, false, time.Now())
	}
	look := func() (asked [2]int) {
		s.mu.Lock()
		for _, j := range s.byID {
			s.lookLocked(j)
		}
		s.mu.Unlock()
		s.look(t.Context(), s.takeLooks(s.lookIDs))
		return [2]int{ids, rows}
	}
	err = fmt.Errorf("call: %w", context.DeadlineExceeded)
	for _, want := range [][2]int{{1000, 100}, {500, 50}, {250, 25}, {125, 12}, {62, 6}, {31, 3}, {15, 1}, {7, 1}, {3, 1}, {1, 1}, {1, 1}} {
		require.Equal(t, want, look())
	}
	err = nil
	for _, want := range [][2]int{{1, 1}, {2, 2}, {4, 4}} {
		require.Equal(t, want, look())
	}
	for range 10 {
		look()
	}
	require.Equal(t, [2]int{batchMax, rowsMax}, look())
}

// A session that has sent an announcement, whatever the answer was, takes it back at its
// end, in as many statements as that needs, each with the time of any other, until one
// fails. One that has sent none says nothing.
func TestEnd(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		isSilent bool
		awaitErr error
		ends     []error // one for each statement, of which the last says that all is done
	}{
		"nothing announced":             {isSilent: true},
		"announced":                     {ends: []error{nil}},
		"much announced":                {ends: []error{nil, nil, nil}},
		"announced, perhaps":            {awaitErr: context.DeadlineExceeded, ends: []error{nil}},
		"a statement fails":             {ends: []error{refused}},
		"a statement fails on the way":  {ends: []error{nil, refused}},
		"nothing may be announced here": {awaitErr: refused, ends: []error{refused}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ends int
			var deadline time.Time
			s := newTestSession(fakeStatements{
				await: func(db.AwaitParams) (bool, error) { return false, test.awaitErr },
				end: func(ctx context.Context) (bool, error) {
					require.NoError(t, ctx.Err())
					until, isBounded := ctx.Deadline()
					require.True(t, isBounded)
					require.True(t, until.After(deadline), "it has a time of its own")
					deadline = until
					require.Less(t, ends, len(test.ends), "statements")
					err := test.ends[ends]
					ends++
					return err == nil && ends == len(test.ends), err
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			if !test.isSilent {
				s.join(7, true)
				require.True(t, s.tell(ctx))
			}
			cancel()
			s.end(ctx)
			require.Len(t, test.ends, ends)
		})
	}
}
