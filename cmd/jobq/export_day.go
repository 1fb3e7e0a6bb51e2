package main

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
)

// exportLine is a line of an export: one of its fields.
type exportLine struct {
	Begin   *exportBegin        `json:"begin,omitempty"`
	Job     *jobq.Job           `json:"job,omitempty"`
	Attempt *monitor.DayAttempt `json:"attempt,omitempty"`
	End     *exportEnd          `json:"end,omitempty"`
}

// exportBegin is in the first line of an export.
type exportBegin struct {
	Day     string    `json:"day"`
	Schema  string    `json:"schema"`
	BeganAt time.Time `json:"began_at"`
	// Recorded is false when the export is not recorded: the day may not be over, and nothing
	// keeps it from being dropped. It is not there otherwise.
	Recorded *bool `json:"recorded,omitempty"`
}

// exportEnd is in the last line: what the export has.
type exportEnd struct {
	Day      string `json:"day"`
	Jobs     int64  `json:"jobs"`
	Attempts int64  `json:"attempts"`
	Recorded *bool  `json:"recorded,omitempty"` // as in the first line
}

// dayExport is an export of a day: how far it has come.
type dayExport struct {
	day            time.Time
	beganAt        time.Time
	jobs, attempts int64 // written
	recorded       *bool // false for an export that is not recorded
	lastJob        int64
	lastAttempt    *monitor.DayAttempt // nil before the first one, which comes after all jobs
	ended          bool
}

// take takes a line into account that was written. It says whether the line is one of an
// export of the day.
func (e *dayExport) take(line exportLine) bool {
	switch {
	case line.Begin != nil:
		e.beganAt = line.Begin.BeganAt
		return line.Begin.Day == e.day.Format(time.DateOnly)
	case line.Job != nil:
		e.jobs++
		e.lastJob = line.Job.ID
	case line.Attempt != nil:
		e.attempts++
		e.lastAttempt = line.Attempt
	case line.End != nil:
		e.ended = true
	default:
		return false
	}
	return true
}

func (e *dayExport) put(out io.Writer, line exportLine) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(line); err != nil {
		return err
	}
	e.take(line)
	return nil
}

// begin writes the first line.
func (e *dayExport) begin(out io.Writer, schema string, at time.Time) error {
	return e.put(out, exportLine{Begin: &exportBegin{Day: e.day.Format(time.DateOnly), Schema: schema, BeganAt: at, Recorded: e.recorded}})
}

// write writes what is missing.
func (e *dayExport) write(ctx context.Context, client *jobq.Client, out io.Writer) error {
	for e.lastAttempt == nil && !e.ended {
		jobs, err := client.JobsOfDay(ctx, e.day, e.lastJob)
		if err != nil {
			return err
		}
		for _, job := range jobs {
			if err := e.put(out, exportLine{Job: job}); err != nil {
				return err
			}
		}
		if len(jobs) == 0 {
			break
		}
	}
	for !e.ended {
		attempts, err := monitor.New(client).AttemptsOfDay(ctx, e.day, e.lastAttempt)
		if err != nil {
			return err
		}
		for i := range attempts {
			if err := e.put(out, exportLine{Attempt: &attempts[i]}); err != nil {
				return err
			}
		}
		if len(attempts) == 0 {
			return e.put(out, exportLine{End: &exportEnd{Day: e.day.Format(time.DateOnly), Jobs: e.jobs, Attempts: e.attempts, Recorded: e.recorded}})
		}
	}
	return nil
}
