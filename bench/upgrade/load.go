package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// kind is that of the jobs that run.
const kind = "tick"

// work is how long a handler takes, so that jobs run at any moment.
const work = 20 * time.Millisecond

// inserts are the two ways in which producers add jobs by SQL.
var inserts = []string{
	"select jobq.enqueue('" + kind + "', args => jsonb_build_object('n', $1::bigint))",
	"insert into jobq.pending (kind, args) values ('" + kind + "', jsonb_build_object('n', $1::bigint)) returning id",
}

// inserter adds jobs, one after the other, as a program that stays as it is while jobq is upgraded.
type inserter struct {
	mu    sync.Mutex
	calls []call
}

// call is an insert that was answered.
type call struct {
	id   int64
	span span
}

// insert adds a job again and again until the context ends. A call that takes longer than the pause is followed by the
// next one at once.
func (i *inserter) insert(ctx context.Context, url, sql string, every time.Duration) error {
	conn, err := pgx.Connect(ctx, url+"&application_name=inserter")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		c := call{span: span{began: time.Now()}}
		// The last one is answered, too: it would else be unknown whether its job is there.
		if err := conn.QueryRow(context.WithoutCancel(ctx), sql, n).Scan(&c.id); err != nil {
			return fmt.Errorf("an insert has failed: %w", err)
		}
		c.span.ended = time.Now()
		i.mu.Lock()
		i.calls = append(i.calls, c)
		i.mu.Unlock()
	}
}

// answered are the inserts so far.
func (i *inserter) answered() []call {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]call(nil), i.calls...)
}

// begun is the start of a handler.
type begun struct {
	id      int64
	attempt int
	worker  string
	at      time.Time
}

// handle is a program that is kept: it notes in the file each job that begins, and by whom.
func handle(path, worker string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) // #nosec G304 -- our own file
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // each line was written
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var job struct {
			ID      int64
			Attempt int
		}
		if err := json.Unmarshal(lines.Bytes(), &job); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(file, "%d %d %s %d\n", job.ID, job.Attempt, worker, time.Now().UnixNano()); err != nil {
			return err
		}
		time.Sleep(work)
		if _, err := fmt.Printf("{\"id\": %d, \"done\": true}\n", job.ID); err != nil {
			return err
		}
	}
	return lines.Err()
}

// readBegun reads what handlers have noted. A line that is just being written is left out.
func readBegun(path string) ([]begun, error) {
	content, err := os.ReadFile(path) // #nosec G304 -- our own file
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text := string(content)
	text = text[:strings.LastIndexByte(text, '\n')+1]
	var all []begun
	for line := range strings.Lines(text) {
		var b begun
		var at int64
		if _, err := fmt.Sscan(line, &b.id, &b.attempt, &b.worker, &at); err != nil {
			return nil, fmt.Errorf("%s: %w", strconv.Quote(line), err)
		}
		b.at = time.Unix(0, at)
		all = append(all, b)
	}
	return all, nil
}
