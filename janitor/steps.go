package janitor

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// stepsEvery is how often the janitor looks for steps of jobs that are gone. That reads all
	// steps, and retention drops a whole day of jobs at a time.
	stepsEvery = 24 * time.Hour
	// stepBatch is at how many steps, or events, one step of these chores looks.
	stepBatch = 1_000
	// eventWakeBatch is how many of the jobs that wait for an event one step wakes.
	// eventWakeEvery is how often the janitor asks whether emit has left some. It is the period
	// of another chore, so that one query asks for both.
	eventWakeBatch = 1_000
	eventWakeEvery = rollUpEvery
)

// stepChores are the chores of durable steps and events.
func stepChores() []*chore {
	return []*chore{
		{name: "wake jobs of events", every: eventWakeEvery, work: wakeJobsOfEvents, often: true},
		pruneSteps(),
		pruneEmitted(),
	}
}

// wakeJobsOfEvents wakes jobs of an event that too many wait for to wake them all at once.
func wakeJobsOfEvents(ctx context.Context, queries *db.Queries) (more bool, err error) {
	return queries.EventWakeRest(ctx, eventWakeBatch)
}

// pruneSteps deletes the steps of jobs that are gone.
func pruneSteps() *chore {
	var place db.StepPruneRow
	work := func(ctx context.Context, queries *db.Queries) (more bool, err error) {
		row, err := queries.StepPrune(ctx, place.LastJob, place.LastName, stepBatch)
		if err != nil {
			return false, err
		}
		if place = row; row.Looked < stepBatch {
			place = db.StepPruneRow{}
		}
		return row.Looked == stepBatch, nil
	}
	return &chore{name: "prune steps", every: stepsEvery, work: work, reset: func() { place = db.StepPruneRow{} }}
}

// pruneEmitted deletes old events that no job waits for.
func pruneEmitted() *chore {
	beginning := db.EmittedPruneRow{LastAt: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}}
	place := beginning
	work := func(ctx context.Context, queries *db.Queries) (more bool, err error) {
		row, err := queries.EmittedPrune(ctx, place.LastAt, place.LastName, stepBatch)
		if err != nil {
			return false, err
		}
		if place = row; row.Looked < stepBatch {
			place = beginning
		}
		return row.Looked == stepBatch, nil
	}
	return &chore{name: "prune emitted events", every: retentionEvery, work: work, reset: func() { place = beginning }}
}
