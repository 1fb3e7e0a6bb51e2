package worker

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Word of new jobs reaches every worker that listens. So that fifty idle ones
// do not all claim one job, a few look at once, and the others later, each after
// a delay of its own. Whoever has looked and left nothing says so, naming the
// word that it had heard before it looked; the others then need not look after
// that word, nor after an earlier one. Words come in the same order to all, and
// so one who has heard a later word is not stopped.
const (
	// fleetSmall is how many workers all look at once.
	fleetSmall = 4
	// wakeSpread is how much longer, for each worker of the fleet, the last of
	// them waits; on average two do not wait at all. It is about as long as a
	// claim and the word of it take.
	wakeSpread    = 4 * time.Millisecond
	wakeSpreadMax = 200 * time.Millisecond
	// takenTimeout bounds the telling. What cannot be told costs the others a
	// claim that finds nothing.
	takenTimeout = 2 * time.Second
)

// herd is the worker among the others that wait for the same jobs.
type herd struct {
	worker *Worker
	taken  chan string   // to be told
	spread time.Duration // the longest delay: wakeSpreadMax, but in tests
}

// run tells the others, until the context ends.
func (h *herd) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case word := <-h.taken:
			callCtx, cancel := context.WithTimeout(ctx, takenTimeout)
			if err := h.worker.queries.TakenSend(callCtx, word); err != nil && ctx.Err() == nil {
				h.worker.databaseTrouble(err)
			}
			cancel()
		}
	}
}

// delay is how long this worker waits before it looks after a word, as one of so
// many that had room for such jobs when they last beat.
func (h *herd) delay(fleet time.Duration) time.Duration {
	if fleet <= fleetSmall {
		return 0
	}
	spread := min(fleet*wakeSpread, h.spread)
	return rand.N(spread) - 2*spread/fleet // #nosec G404 -- no secret
}

// words are what a queue has heard of new jobs.
type words struct {
	last  string
	told  string      // after which somebody has looked and left nothing
	later *time.Timer // until this worker looks after it; nil when it does not wait to
}

// hear wakes the queue after a word of new jobs, at once or a little later. One
// that claims anyhow, or has no room, just remembers it.
func (q *queue) hear(word string, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.words.last = word
	switch {
	case q.words.later != nil:
	case delay <= 0 || q.pace.more || q.inHand+q.asked >= q.slots:
		signal(q.wake)
	default:
		q.words.later = time.AfterFunc(delay, func() {
			q.mu.Lock()
			q.words.later = nil
			q.mu.Unlock()
			signal(q.wake)
		})
	}
}

// spare takes back that the queue is to look after a word: another worker, with
// handlers for the same kinds, has looked and left nothing.
func (q *queue) spare(word string, kinds uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.words.last != word || kindsHash(q.kinds) != kinds {
		return
	}
	q.words.told = word
	if q.words.later != nil && q.words.later.Stop() {
		q.words.later = nil
	}
}

// tellLocked lets the others know that a claim, sent after the word was heard, has
// found less than it asked for.
func (q *queue) tellLocked(word string) {
	if word == "" || word == q.words.told || q.worker.queues[q.name].fleet.Load() <= fleetSmall {
		return
	}
	q.words.told = word
	select {
	case q.worker.herd.taken <- fmt.Sprintf("%s %x %s", word, kindsHash(q.kinds), q.name):
	default:
	}
}

// kindsHash tells workers with other handlers apart.
func kindsHash(kinds []string) uint32 {
	hash := fnv.New32a()
	for _, kind := range slices.Sorted(slices.Values(kinds)) {
		_, _ = hash.Write(append([]byte(kind), 0)) // never fails
	}
	return hash.Sum32()
}

// newWork is told by the schema's function wake.
func (w *Worker) newWork(payload string, atHead bool) {
	word, name, _ := strings.Cut(payload, " ")
	q, ok := w.queues[name]
	if !ok {
		return
	}
	delay := w.herd.delay(time.Duration(q.fleet.Load()))
	for _, each := range q.all() {
		if atHead {
			each.lookAgain()
		}
		each.hear(word, delay)
	}
}

// newsTaken is told by another worker's tellLocked, or by this one's.
func (w *Worker) newsTaken(payload string) {
	word, rest, _ := strings.Cut(payload, " ")
	hash, name, _ := strings.Cut(rest, " ")
	kinds, err := strconv.ParseUint(hash, 16, 32)
	if q, ok := w.queues[name]; ok && err == nil {
		for _, each := range q.all() {
			each.spare(word, uint32(kinds))
		}
	}
}
