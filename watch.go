package jobq

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/listen"
	"github.com/jobq-dev/jobq/internal/watch"
)

const (
	// A watcher's lease, and how often it is renewed. Workers read it with each
	// heartbeat, every 10 seconds, and must not find it run out in between.
	watchLease   = 30 * time.Second
	watchRenew   = 5 * time.Second
	watchTimeout = 3 * time.Second
)

// Digest is what one worker process has done lately: counts by queue, and some
// of the jobs.
type Digest = watch.Digest

// DigestEvent is what has happened to one job of a digest.
type DigestEvent = watch.Event

// WatchConfig says whom to tell of digests. The functions are called by one
// goroutine, one at a time, and must not block. Those that are nil are not.
type WatchConfig struct {
	// OnDigest is told of each digest.
	OnDigest func(*Digest)
	// OnConnect is told whenever listening begins anew: what was said before
	// is lost.
	OnConnect func()
	// OnLost is told why nothing is heard any more, or cannot be, as on a
	// standby. Watch goes on trying.
	OnLost func(err error)
	// OnDeaf is told that notifications do not arrive, as behind a pooler.
	OnDeaf func()
	// Logger is told of trouble. Default slog.Default().
	Logger *slog.Logger
}

// Watch tells what workers do, as it happens, until the context ends: they
// send digests only while somebody watches. It needs a direct connection, of
// which it makes one of its own; it reconnects for ever.
func (c *Client) Watch(ctx context.Context, config WatchConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener, err := listen.New(listen.Config{
		Pool: c.pool.Config(), Sessions: c.sessions, Channels: []string{db.Channel(c.schema.Name(), db.TopicEvent)},
		Logger: config.Logger, SelfTest: true, OnConnect: config.OnConnect, OnDeaf: config.OnDeaf,
		OnEnd: func(err error) {
			if config.OnLost != nil && ctx.Err() == nil {
				config.OnLost(c.clientError("listen", err))
			}
		},
		OnNotify: func(_, payload string) {
			digest, err := watch.Parse(payload)
			if err == nil && config.OnDigest != nil { // anybody may send anything
				config.OnDigest(digest)
			}
		},
	})
	if err != nil {
		return err
	}
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		c.keepWatching(ctx)
	}()
	err = listener.Run(ctx)
	cancel()
	<-renewed
	return err
}

// keepWatching renews the watcher's lease until the context ends, and then
// gives it up. Where it cannot be renewed, as in a read-only session, workers
// are not told: there is nothing to hear then.
func (c *Client) keepWatching(ctx context.Context) {
	id := "watcher-" + rand.Text()
	ticker := time.NewTicker(watchRenew)
	defer ticker.Stop()
	for {
		call, cancel := context.WithTimeout(ctx, watchTimeout)
		_ = c.queries.WatcherRenew(call, id, db.Interval(watchLease)) // tried again with the next tick
		cancel()
		select {
		case <-ctx.Done():
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchTimeout)
			defer cancel()
			_ = c.queries.WatcherGone(call, id) // it runs out by itself
			return
		case <-ticker.C:
		}
	}
}
