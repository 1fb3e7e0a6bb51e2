package check

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// attempts reads what jobq tells its users of runs that did not just complete.
func (c *checker) attempts(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, "select job_id, lease_token, outcome::text from jobq.attempt")
	if err != nil {
		return err
	}
	var key [2]int64
	var outcome string
	_, err = pgx.ForEachRow(rows, []any{&key[0], &key[1], &outcome}, func() error {
		c.outcomes[key] = outcome
		return nil
	})
	return err
}

// ledgers joins the history with what happened outside of the database.
func (c *checker) ledgers() error {
	produced, err := ReadLedger(c.run.Folder, Producers)
	if err != nil {
		return err
	}
	effects, err := ReadLedger(c.run.Folder, Effects)
	if err != nil {
		return err
	}
	completed := make(map[job]int)
	began := make(map[job]int)
	for _, e := range effects {
		switch e.What {
		case "begin":
			began[c.jobOf(e)]++
		case "end":
			completed[c.jobOf(e)]++
		}
	}
	c.verdict.Effects = len(effects)
	overlapping := overlaps(effects)
	c.verdict.Overlaps = len(overlapping)
	for _, e := range overlapping {
		if !c.run.MayOverlap {
			c.violate("I2", "job %d: the run of token %d began while an earlier one went on", e.Job, e.Token)
		}
	}
	for _, e := range produced {
		if e.What != "ack" {
			continue
		}
		c.verdict.Acknowledged++
		history, job := c.jobs[e.Job], c.jobOf(e)
		if c.run.MayLose && (len(history) == 0 || history[0].Key == nil || *history[0].Key != e.Key) { // the id may be another's by now
			c.verdict.Forgotten++
			continue
		}
		if len(history) == 0 {
			c.verdict.Lost++
			c.violate("I1", "job %d was acknowledged and is nowhere", e.Job)
			continue
		}
		last := history[len(history)-1]
		switch {
		case last.Stage != "finished" || last.Op == "delete":
			c.verdict.Lost++
			c.violate("I8", "job %d has not ended: %s of %s", e.Job, last.Op, last.Stage)
		case *last.State == "completed" && completed[job] == 0:
			c.verdict.Lost++
			c.violate("I1", "job %d is completed and had no effect", e.Job)
		case *last.State == "failed" && last.Error == nil:
			c.violate("I1", "job %d has failed for no recorded reason", e.Job)
		case *last.State == "failed" && *last.AttemptsNew != *last.MaxAttempts:
			c.violate("I4", "job %d has failed after %d attempts of %d", e.Job, *last.AttemptsNew, *last.MaxAttempts)
		case *last.State == "failed" && began[job] > *last.MaxAttempts:
			c.violate("I4", "job %d has %d attempts and was run %d times", e.Job, *last.MaxAttempts, began[job])
		}
		if completed[job] > 1 {
			c.verdict.Duplicates++
		}
	}
	return nil
}

// job is one job in the ledgers.
type job struct {
	id  int64
	key string // where ids may be used again; else the first of them would do for all
}

func (c *checker) jobOf(e Entry) job {
	if c.run.MayLose {
		return job{e.Job, e.Key}
	}
	return job{id: e.Job}
}

// overlaps are the runs that began while an earlier run of the same job went
// on: its last sign of life came later.
func overlaps(effects []Entry) (began []Entry) {
	last := make(map[job]map[int64]time.Duration)
	for _, e := range effects {
		key := job{e.Job, e.Key}
		if last[key] == nil {
			last[key] = make(map[int64]time.Duration)
		}
		last[key][e.Token] = max(last[key][e.Token], e.Mono)
	}
	for _, e := range effects {
		if e.What != "begin" {
			continue
		}
		for token, end := range last[job{e.Job, e.Key}] {
			if token < e.Token && end > e.Mono {
				began = append(began, e)
				break
			}
		}
	}
	return began
}
