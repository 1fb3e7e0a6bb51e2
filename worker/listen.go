package worker

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/listen"
	"github.com/jobq-dev/jobq/worker/internal/waking"
)

// listener returns the connection that listens for the worker's notifications, or nil when the
// worker only polls.
func (w *Worker) listener() (*listen.Listener, error) {
	if w.unnotified.Load() { // as configured, or behind a pooler
		return nil, nil
	}
	receivers := w.receivers()
	channels := make([]string, 0, len(receivers))
	for channel := range receivers {
		channels = append(channels, channel)
	}
	listener, err := listen.New(listen.Config{
		Pool: w.client.Pool().Config(), Direct: w.client.Listen(), Sessions: w.client.Sessions(), Channels: channels, Logger: w.log, SelfTest: true,
		OnNotify: func(channel, payload string) { receivers[channel](payload) },
		OnHealthy: func(ctx context.Context, conn *pgx.Conn) error {
			if w.unnotified.Swap(false) {
				w.wakeQueues() // idle queues have not announced that they wait, so inserts did not notify them
			}
			return w.takePresence(ctx, conn)
		},
		OnEnd:             func(error) { w.present.Store(false) },
		OnNoNotifications: func() { w.unnotified.Store(true) },
		OnConnect: func() { // notifications that were sent before this connection are lost
			for _, q := range w.queues {
				q.announcer.Forget()
			}
			w.wakeQueues()
			w.keeper.wakeAll()
		},
	})
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return listener, nil
}

// receivers are the functions that handle the notifications of each channel.
func (w *Worker) receivers() map[string]func(payload string) {
	channel := func(topic string) string { return db.Channel(w.schema.Name(), topic) }
	return map[string]func(payload string){
		channel(db.TopicWork):  func(payload string) { w.receiveNew(payload, false) },
		channel(db.TopicHead):  func(payload string) { w.receiveNew(payload, true) },
		channel(db.TopicTaken): w.receiveLeftNothing,
		channel(db.TopicWatch): func(string) { signal(w.beatSoon) },
		channel(db.TopicRoom):  w.receiveRoom,
		channel(db.TopicSettings): func(name string) {
			if _, ok := w.queues[name]; ok {
				w.receiveRoom(name) // a limit may have been raised
				signal(w.beatSoon)
			}
		},
		channel(db.TopicDrain): func(payload string) {
			if payload == w.id {
				signal(w.beatSoon)
			}
		},
		channel(db.TopicCancel): func(payload string) {
			if id, err := strconv.ParseInt(payload, 10, 64); err == nil {
				w.keeper.wakeFor(id)
			}
		},
	}
}

// receiveNew handles a notification that there are new jobs in the line; or, with returned, that
// jobs have returned to their old places in it.
func (w *Worker) receiveNew(payload string, returned bool) {
	notification, name := waking.ParseNew(payload)
	q, ok := w.queues[name]
	if !ok {
		return
	}
	delay := w.spreader.Delay(q.idleWorkers.Load())
	for _, each := range q.all() {
		if returned {
			each.load.returned()
		}
		each.notifications.Received(notification, delay, each.load.needsNoDelay())
	}
}

// receiveLeftNothing handles a notification that a worker, perhaps this one, has claimed and left
// no job in the line.
func (w *Worker) receiveLeftNothing(payload string) {
	notification, kinds, name, ok := waking.ParseLeftNothing(payload)
	q := w.queues[name]
	if !ok || q == nil {
		return
	}
	for _, each := range q.all() {
		each.notifications.LeftNothing(notification, kinds)
	}
}

// receiveRoom handles a notification that a queue which was at its limit may run more jobs.
func (w *Worker) receiveRoom(name string) {
	q, ok := w.queues[name]
	if !ok {
		return
	}
	for _, each := range q.all() {
		each.unblock()
	}
}

// wakeQueues makes all queues look at the whole line for work, and ask again what their limits admit.
func (w *Worker) wakeQueues() {
	for _, q := range w.queues {
		for _, each := range q.all() {
			each.load.unblock()
			each.lookAgain()
		}
	}
}

// wakeQueuesOf makes the queues that claim the kind look at the whole line for work.
func (w *Worker) wakeQueuesOf(kind string) {
	for _, q := range w.queues {
		for _, each := range q.all() {
			if slices.Contains(each.kinds, kind) {
				each.lookAgain()
			}
		}
	}
}
