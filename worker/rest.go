package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/resting"
)

// This file is where a worker leaves a kind to others, because its own runs of it fail and those of others succeed: see
// package resting.

// runEnded counts the end of a run. A failure that the handler calls final is the job's, and says nothing about the machine.
func (w *Worker) runEnded(kind string, failed, completed bool) {
	ask, resumed := w.resting.Ended(kind, failed, completed, time.Now())
	if resumed {
		w.log.Info("a run of the kind has succeeded here again, it is claimed", "kind", kind)
		w.wakeQueuesOf(kind)
	}
	if ask {
		signal(w.beatSoon)
		w.wakeAfterRest(kind)
	}
}

// wakeAfterRest makes the worker look for a job of the kind when its rest is over.
func (w *Worker) wakeAfterRest(kind string) {
	if rest := w.resting.Wake(kind, time.Now()); rest >= 0 {
		time.AfterFunc(rest, func() { w.wakeQueuesOf(kind) })
	}
}

// askOthers asks how the runs of other workers have ended, of the kinds that may have to rest here. It is called after
// each heartbeat, and mostly asks nothing.
func (w *Worker) askOthers(ctx context.Context) {
	open := w.resting.Open(time.Now())
	if len(open) == 0 {
		return
	}
	params := db.WorkerOutcomesParams{ID: w.id, Silence: db.Interval(workerSilence)}
	for kind, since := range open {
		params.Kinds, params.SinceMs = append(params.Kinds, kind), append(params.SinceMs, since.Milliseconds())
	}
	rows, err := w.queries.WorkerOutcomes(ctx, params)
	if err != nil {
		if ctx.Err() == nil {
			w.databaseTrouble(err)
		}
		return // the next heartbeat asks again
	}
	for _, row := range rows {
		others := resting.Others{Live: int(row.Live), OK: int(row.Ok), Failed: int(row.Failed), LastOK: time.Duration(row.LastOkMs) * time.Millisecond}
		verdict, streak, rest := w.resting.Answered(row.Kind, open[row.Kind], others, time.Now())
		switch verdict {
		case resting.Rests:
			w.wakeAfterRest(row.Kind)
			w.log.Warn("runs of the kind fail here and succeed on other workers: it rests here", "kind", row.Kind, "failures", streak, "rest", rest.Round(time.Second))
		case resting.Resumes:
			w.log.Info("runs of the kind fail on other workers too, or there are none: it is claimed here", "kind", row.Kind, "failures", streak)
			w.wakeQueuesOf(row.Kind)
		case resting.Unchanged:
		}
	}
}

// troubles says of each kind that rests why, for the worker's row.
func (w *Worker) troubles() map[string]string {
	troubles := make(map[string]string)
	for kind, sure := range w.resting.Resting() {
		troubles[kind] = "it rests here: its last runs failed, and it is not known yet whether those of other workers succeed"
		if sure {
			troubles[kind] = fmt.Sprintf("it rests here: at least %d runs in a row failed, while those of other workers succeed", w.resting.After)
		}
	}
	return troubles
}

// outcomes is what other workers are told, for the worker's row.
func (w *Worker) outcomes() (json.RawMessage, error) { return json.Marshal(w.resting.Told(time.Now())) }
