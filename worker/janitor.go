package worker

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/janitor"
)

// This file starts a janitor. No other file of this package calls one: what worker and janitor tell
// each other is in rows (docs/decisions/0045).

const (
	// janitorLookEvery is how often a worker without a janitor looks whether one runs elsewhere.
	// It warns when two looks in a row find none: another process may be about to start one.
	janitorLookEvery = 10 * time.Second
	// janitorSilence is for how long a janitor that runs may say nothing. It says every 10 s that it lives.
	janitorSilence = 25 * time.Second
	// janitorConnections are those that a janitor makes beside the client's pool: the leader's, and that of the chores.
	janitorConnections = 2
)

// attendant is the janitor that runs beside a worker.
type attendant struct {
	janitor *janitor.Janitor // nil: another process runs one, as Config.NoJanitor says
	// lookEvery is janitorLookEvery; tests shorten it.
	lookEvery time.Duration
}

func newAttendant(client *jobq.Client, config *Config) (a attendant, err error) {
	a.lookEvery = janitorLookEvery
	if config.NoJanitor {
		return a, nil
	}
	var settings janitor.Config
	if config.Janitor != nil {
		settings = *config.Janitor
	}
	settings.Logger = cmp.Or(settings.Logger, config.Logger)
	a.janitor, err = janitor.New(client, &settings)
	return a, err
}

// Janitor returns the janitor that Run runs beside the worker; nil with Config.NoJanitor.
func (w *Worker) Janitor() *janitor.Janitor { return w.janitor.janitor }

// attend runs the janitor until the context ends, which is that of Run: when it is told to stop, another janitor
// leads while handlers take their time. During a drain by an operator, the janitor works on. One that cannot go
// on ends the worker.
func (w *Worker) attend(ctx context.Context) {
	if w.janitor.janitor == nil {
		w.lookForJanitor(ctx)
		return
	}
	if err := w.janitor.janitor.Run(ctx); err != nil {
		w.halt.begin(fmt.Errorf("worker: %w", err), false)
	}
}

// lookForJanitor warns when no janitor lives anywhere, once each time. It ignores errors: what else the
// worker asks of the database reports them.
func (w *Worker) lookForJanitor(ctx context.Context) {
	for unseen := 0; sleep.For(ctx, w.janitor.lookEvery) == nil; {
		callCtx, cancel := context.WithTimeout(ctx, janitorLookEvery)
		seen, err := w.queries.JanitorSeen(callCtx, db.Interval(janitorSilence))
		cancel()
		switch {
		case err != nil:
		case !seen:
			if unseen++; unseen == 2 {
				w.log.Warn("no janitor runs: retries and scheduled jobs do not start, and jobs of dead workers stay running, until one does")
			}
		default:
			if unseen >= 2 {
				w.log.Info("a janitor runs")
			}
			unseen = 0
		}
	}
}
