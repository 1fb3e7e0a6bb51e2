package worker

import (
	"context"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/printable"
)

const (
	// outputFlushEvery is how often new output of programs is stored, for those who
	// follow a run.
	outputFlushEvery = 500 * time.Millisecond
	// outputFlushBytesMax bounds what is stored of one run each time. If a program writes
	// more, those who follow the run miss parts of it. The attempt has the end of it all.
	outputFlushBytesMax = 16 << 10
)

// liveOutput stores the output of a run in pieces while the program writes it. See
// ExternalRun.ShowOutput.
type liveOutput struct {
	run    *Run
	source Output

	mu sync.Mutex
	// guarded by mu
	flushedAt int64 // bytes written up to there are stored, or skipped
}

// next returns the piece to store, or nil when nothing is new. If the last character is
// not complete yet, it is left for the next piece.
func (l *liveOutput) next() *db.OutputAppendParams {
	l.mu.Lock()
	defer l.mu.Unlock()
	content, begin := l.source.Since(l.flushedAt)
	if excess := len(content) - outputFlushBytesMax; excess > 0 {
		content, begin = content[excess:], begin+int64(excess)
	}
	content = content[:len(content)-halfRune(content)]
	if len(content) == 0 {
		return nil
	}
	l.flushedAt = begin + int64(len(content))
	return &db.OutputAppendParams{
		BeginsAt: begin, EndsAt: l.flushedAt, Content: shown(content), KeepFrom: l.flushedAt - OutputBytesMax,
		ID: l.run.row.ID, Token: l.run.row.LeaseToken, Owner: l.run.worker.id, ClaimedAt: l.run.row.StartedAt,
	}
}

// flushRest stores the last piece, if earlier ones were stored. So those who follow the run
// see its end, and a short run, of which nothing was stored yet, costs nothing.
func (l *liveOutput) flushRest(ctx context.Context) {
	l.mu.Lock()
	begun := l.flushedAt > 0
	l.mu.Unlock()
	if !begun {
		return
	}
	if piece := l.next(); piece != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		if _, err := l.run.worker.queries.OutputAppend(ctx, *piece); err != nil {
			l.run.worker.databaseTrouble(err)
		}
	}
}

// halfRune is how many bytes at the end may be the beginning of a character.
func halfRune(content []byte) int {
	for length := 1; length < utf8.UTFMax && length <= len(content); length++ {
		if end := content[len(content)-length:]; utf8.RuneStart(end[0]) {
			if end[0] >= utf8.RuneSelf && !utf8.FullRune(end) {
				return length
			}
			return 0
		}
	}
	return 0
}

// flushOutput stores what programs write, until the context ends. The janitor deletes it
// after the end of the run, when it is older than 5 minutes.
func (w *Worker) flushOutput(ctx context.Context) {
	flush := time.NewTicker(outputFlushEvery)
	defer flush.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-flush.C:
			if w.keeper.hasProgress() {
				signal(w.keeper.wake) // without this, the keeper may look only after a second
			}
			w.flushPieces(ctx)
		}
	}
}

// flushPieces stores what is new of all runs in one round trip. What cannot be
// stored is skipped: the end of the output is kept with the attempt.
func (w *Worker) flushPieces(ctx context.Context) {
	batch := &pgx.Batch{}
	for _, run := range w.keeper.held.Running() {
		live := run.live.Load()
		if live == nil {
			continue
		}
		if piece := live.next(); piece != nil {
			w.schema.Queue(batch, func(q *db.Queries) { _, _ = q.OutputAppend(ctx, *piece) })
		}
	}
	if batch.Len() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := w.pool.SendBatch(ctx, batch).Close(); err != nil {
		w.databaseTrouble(err)
	}
}

// shown is output as it is stored: without control characters that could harm a terminal,
// and only its end if it is longer than OutputBytesMax.
func shown(output []byte) string {
	text := printable.Text(string(output))
	if excess := len(text) - OutputBytesMax; excess > 0 {
		start := excess + slices.IndexFunc([]byte(text[excess:]), utf8.RuneStart)
		text = text[start:]
	}
	return text
}
