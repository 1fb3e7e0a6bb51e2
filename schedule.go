package jobq

import (
	"encoding/json"
	"time"
)

// CatchUp is what becomes of the ticks of a schedule that no janitor was there for.
type CatchUp string

// The ways to catch up.
const (
	// CatchUpLatest: the latest of them fires once. The default.
	CatchUpLatest CatchUp = "latest"
	// CatchUpNone: none. A tick that is up to a minute late is none of them.
	CatchUpNone CatchUp = "none"
	// CatchUpAll: all fire, at most CatchUpMax.
	CatchUpAll CatchUp = "all"
)

// Overlap is what becomes of a tick while the job of the one before is unfinished.
type Overlap string

// The overlaps.
const (
	OverlapAllow Overlap = "allow" // it fires all the same. The default.
	OverlapSkip  Overlap = "skip"  // it is left out
)

// Schedule says when to add a job by itself, and which. A moment at which it fires
// is a tick: any number of janitors make each tick once.
type Schedule struct {
	// Name is 1 to 128 characters.
	Name string `json:"name"`
	// Cron is an expression of five fields (minute, hour, day of the month, month,
	// day of the week), such as "0 9 * * mon", or @daily. Either this or Every.
	Cron string `json:"cron,omitempty"`
	// TimeZone is that of Cron: an IANA name such as Europe/Berlin. Default UTC.
	TimeZone string `json:"time_zone,omitempty"`
	// Every is an interval of whole seconds, 1 second to 366 days, which is counted
	// from 1970-01-01 00:00 UTC.
	Every time.Duration `json:"every_ns,omitempty"`
	// Kind and Args are those of the job. Empty Args mean {}.
	Kind string          `json:"kind"`
	Args json.RawMessage `json:"args,omitempty"`
	// These are as in EnqueueOptions, with the same defaults, when the job is added: those of the kind
	// in the database, if there are any. Package monitor returns what the jobs would have now. Metadata must be an
	// object: each job has the name of the schedule and its tick added to it.
	Queue       string          `json:"queue"`
	Priority    int16           `json:"priority"`
	MaxAttempts int             `json:"max_attempts"`
	Timeout     time.Duration   `json:"timeout_ns,omitempty"`
	BackoffBase time.Duration   `json:"backoff_base_ns,omitempty"`
	BackoffMax  time.Duration   `json:"backoff_max_ns,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	// PartitionKey is that of its jobs, as in EnqueueOptions.
	PartitionKey string `json:"partition_key,omitempty"`
	// CatchUp is what becomes of ticks that were missed. Default CatchUpLatest.
	CatchUp CatchUp `json:"catch_up"`
	// CatchUpMax is how many of them fire at most, with CatchUpAll: 1 to 1000.
	// Default 100.
	CatchUpMax int `json:"catch_up_max"`
	// CatchUpWithin is how late a tick may fire at most: 1 second to 10 years.
	// Default 1 day.
	CatchUpWithin time.Duration `json:"catch_up_within_ns"`
	// Overlap is what becomes of a tick while the job of the one before is
	// unfinished. Default OverlapAllow.
	Overlap Overlap `json:"overlap"`
	// Source is where the schedule is declared, such as a file, for people to read:
	// at most 255 characters.
	Source string `json:"source,omitempty"`
}
