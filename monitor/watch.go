package monitor

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/listen"
	"github.com/jobq-dev/jobq/internal/watch"
)

const (
	// A watcher's lease, and how often it is renewed. Workers read it with each
	// heartbeat, every 10 seconds, and must not find it run out in between.
	watchLease   = 30 * time.Second
	watchRenew   = 5 * time.Second
	watchTimeout = 3 * time.Second
	// digestsMax bounds what is read at once, and readRest how often.
	digestsMax = 1000
	readRest   = 50 * time.Millisecond
)

// Digest is what one worker process has done lately: counts by queue, and some
// of the jobs.
type Digest = watch.Digest

// DigestEvent is what has happened to one job of a digest.
type DigestEvent = watch.Event

// WatchConfig says whom to tell of digests. The functions are called one at
// a time, and must not block. Those that are nil are not.
type WatchConfig struct {
	// OnDigest is told of each digest. Default nil: nobody.
	OnDigest func(*Digest)
	// OnConnect is told whenever listening begins anew: what was said before
	// is lost. Default nil: nobody.
	OnConnect func()
	// OnLost is told why nothing is heard any more, or cannot be, as on a
	// standby. Watch goes on trying. Default nil: nobody.
	OnLost func(err error)
	// OnNoNotifications is told that notifications do not arrive, as behind a pooler. Default
	// nil: nobody.
	OnNoNotifications func()
	// Logger is told of trouble. Default slog.Default().
	Logger *slog.Logger
}

// Watch tells what workers do, as it happens, until the context ends: they send
// digests only while somebody watches. It listens on a connection of its own, which
// must be direct: see jobq.Config.Listen. It reconnects whenever that is lost. It reads
// the digests on the client's pool, at most every 50 ms.
func (m *Monitor) Watch(ctx context.Context, config WatchConfig) error {
	if none, ok := m.pool.(db.NoPool); ok {
		return fmt.Errorf("watch: %w", none.Err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &watching{monitor: m, config: config, wake: make(chan struct{}, 1)}
	listener, err := listen.New(listen.Config{
		Pool: m.pool.Config(), Direct: m.direct, Sessions: m.schema.Sessions(), Channels: []string{db.Channel(m.schema.Name(), db.TopicEvent)},
		Logger: config.Logger, SelfTest: true,
		OnConnect:         func() { w.tell(config.OnConnect) },
		OnNoNotifications: func() { w.tell(config.OnNoNotifications) },
		OnEnd: func(err error) {
			if config.OnLost != nil && ctx.Err() == nil {
				w.tell(func() { config.OnLost(dberror.Wrap(m.schema, "listen", err)) })
			}
		},
		OnNotify: func(_, payload string) { w.received(payload) },
	})
	if err != nil {
		return err
	}
	var beside sync.WaitGroup
	beside.Go(func() { m.keepWatching(ctx) })
	beside.Go(func() { w.read(ctx) })
	err = listener.Run(ctx)
	cancel()
	beside.Wait()
	return err
}

// watching is a call of Watch.
type watching struct {
	monitor *Monitor
	config  WatchConfig
	wake    chan struct{}
	telling sync.Mutex // held while one of the caller's functions runs

	mu sync.Mutex
	// guarded by mu
	ids []int64 // of digests to be read
}

func (w *watching) tell(f func()) {
	if f == nil {
		return
	}
	w.telling.Lock()
	defer w.telling.Unlock()
	f()
}

// received notes the id of a digest. Anybody may send anything: what is no id is not
// read, and what is too much is forgotten, which the digests' numbers show.
func (w *watching) received(payload string) {
	id, err := strconv.ParseInt(payload, 10, 64)
	if err != nil || w.config.OnDigest == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ids) < digestsMax {
		w.ids = append(w.ids, id)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// read tells the caller what workers have told, until the context ends.
func (w *watching) read(ctx context.Context) {
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		w.mu.Lock()
		ids := w.ids
		w.ids = nil
		w.mu.Unlock()
		w.readOnce(ctx, ids)
		rest.Reset(readRest)
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
	}
}

// readOnce tells the caller of these digests. What cannot be read is lost, which
// the numbers of the next ones show.
func (w *watching) readOnce(ctx context.Context, ids []int64) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	texts, err := w.monitor.queries.DigestRead(ctx, ids)
	if err != nil {
		return
	}
	for _, text := range texts {
		if digest, err := watch.Parse(text); err == nil {
			w.tell(func() { w.config.OnDigest(digest) })
		}
	}
}

// keepWatching renews the watcher's lease until the context ends, and then
// gives it up. Where it cannot be renewed, as in a read-only session, workers
// are not told: there is nothing to hear then.
func (m *Monitor) keepWatching(ctx context.Context) {
	id := "watcher-" + rand.Text()
	ticker := time.NewTicker(watchRenew)
	defer ticker.Stop()
	for {
		call, cancel := context.WithTimeout(ctx, watchTimeout)
		_ = m.queries.WatcherRenew(call, id, db.Interval(watchLease)) // tried again with the next tick
		cancel()
		select {
		case <-ctx.Done():
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchTimeout)
			defer cancel()
			_ = m.queries.WatcherGone(call, id) // it runs out by itself
			return
		case <-ticker.C:
		}
	}
}
