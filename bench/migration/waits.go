package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// sampleEvery is how often the server is asked what sessions wait for. A stall of
// a tenth of a second is seen twice.
const sampleEvery = 50 * time.Millisecond

// waits is what sessions of the load were seen to wait for.
type waits struct {
	mu   sync.Mutex
	seen []wait // guarded by mu
}

// wait is what one session was waiting for at one moment. Of a session that the
// server counts as working, nothing is known but that: it may wait for a processor.
type wait struct {
	at   time.Time
	pid  uint32
	what string
}

// sample asks until the context ends.
func (w *waits) sample(ctx context.Context, conn *pgx.Conn) error {
	for ctx.Err() == nil {
		rows, err := conn.Query(context.WithoutCancel(ctx), `
			select a.pid, coalesce(a.wait_event_type || ' ' || a.wait_event, 'no wait') from pg_stat_activity a
			where a.state = 'active' and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()`)
		if err != nil {
			return err
		}
		found := wait{at: time.Now()}
		var all []wait
		if _, err := pgx.ForEachRow(rows, []any{&found.pid, &found.what}, func() error {
			all = append(all, found)
			return nil
		}); err != nil {
			return err
		}
		w.mu.Lock()
		w.seen = append(w.seen, all...)
		w.mu.Unlock()
		_ = pause(ctx, sampleEvery) // the loop looks at the context
	}
	return nil
}

// of is what a session waited for in a call, the most frequent first.
func (w *waits) of(c call) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := make(map[string]int)
	for _, s := range w.seen {
		if s.pid == c.pid && !s.at.Before(c.began) && !s.at.After(c.began.Add(c.took)) {
			count[s.what]++
		}
	}
	var names []string
	for name := range count {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return count[b] - count[a] })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (seen %d times)", name, count[name])
	}
	return strings.Join(names, ", ")
}
