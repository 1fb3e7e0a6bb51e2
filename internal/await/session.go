package await

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/listen"
	"github.com/jobq-dev/jobq/internal/sleep"
)

const (
	// lease is how long the database remembers a process of which it hears nothing.
	lease = 30 * time.Second
	// renewEvery is how often the process says that it still waits.
	renewEvery = 10 * time.Second
	// retryAfter is how long an announcement waits that could not be made. Jobs are
	// found by looking meanwhile.
	retryAfter = 5 * time.Second
	// rowsMax bounds an answer: a result may have 1 MiB.
	rowsMax = 100
	// quickLook is how long a look may take of which more is asked the next time.
	quickLook = callTimeout / 4
	// callTimeout bounds a statement.
	callTimeout = 10 * time.Second
	// restMin and restMax bound how long the process rests after a look before the next
	// one: as long as the look took, so that what ends meanwhile is read together.
	restMin = 2 * time.Millisecond
	restMax = 100 * time.Millisecond
)

// statements are those of a session: *db.Queries has them.
type statements interface {
	EndRead(ctx context.Context, ids []int64, rowCount int32) ([]db.EndReadRow, error)
	Await(ctx context.Context, params db.AwaitParams) (known bool, err error)
	AwaitEnd(ctx context.Context, waiter int64) (isDone bool, err error)
}

// session waits for jobs until it is cancelled. One goroutine sends its statements,
// one at a time, and another one listens. For example, of a wait that begins at 0 ms,
// for a job that ends after 300 ms:
//
//	  0 ms  look: the job runs
//	  1 ms  announce: the database is told that somebody waits for the job
//	  2 ms  look: it may have ended before it was announced, but it runs
//	300 ms  the job ends; because it was announced, a notification has its id
//	301 ms  look: it has completed, and the wait is over
//
// If the notification is missed, a look after one second finds the job, or one of those
// that follow after two, four, eight, and from then on each sixteen seconds.
type session struct {
	jobs

	waiters *Waiters
	id      int64 // by which the database knows the process
	queries statements
	cancel  context.CancelFunc
	wake    chan struct{}

	listener    *listen.Listener
	listening   sync.WaitGroup
	isListening bool // of the goroutine that sends the statements, as is what follows

	tick       <-chan time.Time // each second
	hasSent    bool             // an announcement, which may have been stored even if it failed
	renewedAt  time.Time        // when the last announcement was sent that was stored; zero for none
	retryAt    time.Time        // when the next announcement may be made, after one that failed
	lookedAt   time.Time        // when the last look had ended
	lookedFor  time.Duration
	lookIDs    int  // how many jobs the next look may be about
	lookRows   int  // for how many of them it may have an answer
	lookFails  bool // the last look has failed, and the log says so
	awaitFails bool // likewise, of announcements
}

// newSession starts a session. Where notifications have arrived before, it neither looks
// for a pooler nor tests that they arrive, which takes far longer than to connect.
func newSession(w *Waiters, hasListened bool) (*session, error) {
	sessions := w.schema.Sessions()
	if hasListened {
		sessions = db.SessionsOwn
	}
	s := &session{
		jobs: jobs{byID: make(map[int64]*job)}, waiters: w, id: rand.Int64(), // #nosec G404 -- no secret
		queries: w.schema.Queries(w.pool), wake: make(chan struct{}, 1), lookIDs: batchMax, lookRows: rowsMax,
	}
	var err error
	s.listener, err = listen.New(listen.Config{
		Pool: w.pool.Config(), Direct: w.direct, Sessions: sessions, SelfTest: !hasListened,
		Channels: []string{db.Channel(w.schema.Name(), db.TopicEnded)},
		OnNotify: func(_, payload string) {
			if s.notified(payload) {
				s.signal()
			}
		},
		OnHealthy: func(context.Context, *pgx.Conn) error {
			w.hasListened()
			s.setArriving(true, time.Now())
			s.signal()
			return nil
		},
		OnEnd:             func(error) { s.setArriving(false, time.Now()) },
		OnNoNotifications: func() { s.setArriving(false, time.Now()) },
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.run(ctx)
	return s, nil
}

func (s *session) join(id int64, isNew bool) *wait {
	w := s.jobs.join(id, isNew, time.Now())
	s.signal()
	return w
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run is the life of the session.
func (s *session) run(ctx context.Context) {
	defer s.listening.Wait()
	defer s.end(ctx)
	ticker := time.NewTicker(pollMin)
	defer ticker.Stop()
	s.tick = ticker.C
	for {
		s.work(ctx)
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-s.tick:
			s.due(time.Now())
		}
	}
}

// work looks and announces in turns until there is nothing more to do. However many looks
// there are to make, each turn has one, and what else is due has its turn as well.
func (s *session) work(ctx context.Context) {
	for isDone := false; !isDone && ctx.Err() == nil; {
		select {
		case <-s.tick:
			s.due(time.Now())
		default:
		}
		ids := s.takeLooks(s.lookIDs)
		if len(ids) > 0 {
			s.look(ctx, ids)
		}
		s.listen(ctx)
		isDone = !s.tell(ctx) && len(ids) == 0
	}
}

// listen begins to listen when that is worth while: a job that has ended before needs no
// connection.
func (s *session) listen(ctx context.Context) {
	if !s.isListening && s.isOpen() {
		s.isListening = true
		s.listening.Go(func() { _ = s.listener.Run(ctx) }) // never an error
	}
}

// look asks how the jobs have ended. An error of the database that does not pass is
// that of all who wait for them.
func (s *session) look(ctx context.Context, ids []int64) {
	if s.rest(ctx) != nil {
		return
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sent := time.Now()
	rows, err := s.queries.EndRead(call, ids, int32(s.lookRows)) // #nosec G115 -- at most rowsMax
	now := time.Now()
	s.lookedAt, s.lookedFor = now, now.Sub(sent)
	switch {
	case err == nil:
		s.looked(ids, rows, len(rows) < s.lookRows, now)
		s.lookFails = false
		if s.lookedFor < quickLook {
			s.lookIDs, s.lookRows = min(2*s.lookIDs, batchMax), min(2*s.lookRows, rowsMax)
		}
	case db.IsTransient(err) || db.IsTimeout(err):
		s.notLooked(ids, nil, now)
		s.warn(ctx, &s.lookFails, "wait for jobs: database call failed, waiting on", err)
		if db.IsTimeout(err) { // results may be large, and the way slow
			s.lookIDs, s.lookRows = max(s.lookIDs/2, 1), max(s.lookRows/2, 1)
		}
	default:
		s.notLooked(ids, err, now)
	}
}

// rest waits before a look that follows on another one.
func (s *session) rest(ctx context.Context) error {
	return sleep.For(ctx, time.Until(s.lookedAt.Add(min(max(s.lookedFor, restMin), restMax))))
}

// announce tells the database for which jobs the process waits, and for which no
// longer. Where that cannot be, as on a standby, the jobs are found by looking.
//
// The end of the session does not interrupt it: the server might go on with it for a
// while, and keep rows locked that the end is to delete.
func (s *session) announce(ctx context.Context, ids, forget []int64) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	sent := time.Now()
	s.hasSent = true
	known, err := s.queries.Await(call, db.AwaitParams{Waiter: s.id, Jobs: ids, Done: forget, Lease: db.Interval(lease)})
	if err != nil {
		s.notAnnounced(ids, forget)
		s.retryAt = time.Now().Add(retryAfter)
		s.warn(ctx, &s.awaitFails, "wait for jobs: ends are not notified, looking each second", err)
		return
	}
	s.awaitFails = false
	// The database renews the lease only when a third of it has gone: what was renewed last
	// may have been up to a third of it earlier.
	wasLate := !s.renewedAt.IsZero() && (!known || sent.Sub(s.renewedAt) > lease*2/3)
	s.renewedAt = sent
	s.isAnnounced(ids)
	if wasLate { // others may have deleted what it had said
		s.announceAll()
	}
}

// tell makes the next announcement, or says that the process still waits when it is time
// for that. It returns whether it has said anything.
func (s *session) tell(ctx context.Context) bool {
	now := time.Now()
	if now.Before(s.retryAt) {
		return false
	}
	ids, forget := s.takeAnnouncements()
	if len(ids)+len(forget) == 0 {
		if s.renewedAt.IsZero() || now.Sub(s.renewedAt) < renewEvery {
			return false
		}
		forget = s.takeForget()
	}
	s.announce(ctx, ids, forget)
	return true
}

// end tells the database that the process waits no more. If that fails, what it had
// announced is left for its lease, and then until the janitor comes: no more than a
// notification that nobody needs.
func (s *session) end(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for isDone := !s.hasSent; !isDone; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		var err error
		isDone, err = s.queries.AwaitEnd(call, s.id)
		cancel()
		if err != nil {
			return
		}
	}
}

// warn logs the first failure of several in a row.
func (s *session) warn(ctx context.Context, fails *bool, text string, err error) {
	if ctx.Err() == nil && !*fails {
		*fails = true
		slog.Warn(text, "error", err)
	}
}
