package tui

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/screen"
)

const (
	// feedEvery is how often the events are shown: one message however much
	// there is.
	feedEvery = 100 * time.Millisecond
	// feedJobsMax bounds the jobs that one message names.
	feedJobsMax = 500
)

// feed gathers digests between two messages.
type feed struct {
	mu sync.Mutex
	// guarded by mu
	next      data.Feed
	places    map[int64]int    // of next.Events, by job: the last word counts
	sequences map[string]int64 // the sequence of each worker
	oldest    int64            // when the first event of next happened, in ms
	dirty     bool
	wake      chan struct{}
}

// start says where to send events. It does nothing when only polling is wanted.
func (s *sender) start(ctx context.Context, send func(tea.Msg), pollOnly bool) {
	if pollOnly {
		go send(feedStateMsg{feedPolling, "as --poll-only asks"})
		return
	}
	s.send = send
	s.mu.Lock()
	s.parent = ctx
	s.mu.Unlock()
}

// turnTo listens to this database, after stop to the one before.
func (s *sender) turnTo(client *jobq.Client) {
	if s.send == nil { // told to poll
		return
	}
	s.mu.Lock()
	s.run = func(ctx context.Context) { guard(s.send, func() { listenTo(ctx, client, s.every, s.send) }) }
	s.mu.Unlock()
	s.begin()
}

// guard hands a panic to the program, which gives the terminal back before it
// ends. Left alone in a goroutine of our own, it would end the process at once.
func guard(send func(tea.Msg), f func()) {
	defer func() {
		if reason := recover(); reason != nil {
			send(panicMsg{reason, debug.Stack()})
		}
	}()
	f()
}

// listenTo watches until the context ends.
func listenTo(ctx context.Context, client *jobq.Client, every time.Duration, send func(tea.Msg)) {
	f := &feed{sequences: make(map[string]int64), places: make(map[int64]int), wake: make(chan struct{}, 1)}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		guard(send, func() { f.flushUntil(ctx, every, send) })
	}()
	err := monitor.New(client).Watch(ctx, monitor.WatchConfig{
		Logger: slog.New(slog.DiscardHandler), OnDigest: f.take,
		OnConnect: func() {
			f.lost()
			send(feedStateMsg{feedLive, ""})
		},
		OnLost: func(err error) { send(feedStateMsg{feedPolling, screen.ShortError(err)}) },
		OnNoNotifications: func() {
			send(feedStateMsg{feedPolling, "no events, as behind a pooler"})
		},
	})
	if err != nil {
		send(feedStateMsg{feedPolling, err.Error()})
	}
	<-flushed
}

// lost notes that notifications may be missing.
func (f *feed) lost() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next.Gap, f.dirty = true, true
	f.signal()
}

func (f *feed) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take adds a digest to the next message.
func (f *feed) take(digest *monitor.Digest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, ok := f.sequences[digest.Worker]; ok && digest.Sequence != last+1 {
		f.next.Gap = true
	}
	if len(f.sequences) > 10_000 { // nobody has so many workers: somebody makes names up
		clear(f.sequences)
	}
	f.sequences[digest.Worker] = digest.Sequence
	f.next.Gap = f.next.Gap || digest.More
	if f.next.Ended == nil {
		f.next.Ended = make(map[string]data.Ended)
	}
	for name, count := range digest.Queues {
		if len(f.next.Ended) > 1000 {
			break
		}
		sum := f.next.Ended[name]
		f.next.Ended[name] = data.Ended{Completed: sum.Completed + count.Completed, Failed: sum.Failed + count.Failed, Others: sum.Others + count.Others}
	}
	for _, event := range digest.Events {
		e := data.Event{
			ID: event.ID, Token: event.Token, Queue: event.Queue, Kind: event.Kind, State: jobq.State(event.State), Attempts: event.Attempts,
			Percent: event.Percent, Stage: event.Stage, Took: time.Duration(event.TookMs) * time.Millisecond,
		}
		if at, ok := f.places[e.ID]; ok {
			f.next.Events[at] = e
			continue
		}
		if len(f.next.Events) >= feedJobsMax {
			f.next.Gap = true
			break
		}
		f.places[e.ID] = len(f.next.Events)
		f.next.Events = append(f.next.Events, e)
	}
	if f.oldest == 0 || digest.AtMs < f.oldest {
		f.oldest = digest.AtMs
	}
	f.dirty = true
	f.signal()
}

// flushUntil sends what has gathered, at most that often; the first after a
// quiet time at once.
func (f *feed) flushUntil(ctx context.Context, every time.Duration, send func(tea.Msg)) {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		if msg, ok := f.flush(time.Now()); ok {
			send(feedMsg(msg))
		}
		timer.Reset(every)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

func (f *feed) flush(now time.Time) (data.Feed, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dirty {
		return data.Feed{}, false
	}
	msg := f.next
	msg.At = now
	if f.oldest > 0 {
		msg.Lag = max(now.Sub(time.UnixMilli(f.oldest)), 0)
	}
	f.next, f.oldest, f.dirty = data.Feed{}, 0, false
	clear(f.places)
	return msg, true
}
