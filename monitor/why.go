package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// ReasonCode is a reason why a job is not running, or says where the job is.
type ReasonCode string

// The reasons. Those of a job that waits are about the moment: several may hold at once.
const (
	ReasonScheduled       ReasonCode = "scheduled"         // its time has not come
	ReasonWaitsForJobs    ReasonCode = "waits_for_jobs"    // jobs that it waits for are not over
	ReasonRetry           ReasonCode = "retry"             // it has failed, and waits for its next attempt
	ReasonAlone           ReasonCode = "alone"             // it was lost with its workers, and waits for one that runs nothing else
	ReasonDue             ReasonCode = "due"               // its time has come, and no janitor has put it in the line yet
	ReasonSleeping        ReasonCode = "sleeping"          // it sleeps in a durable step
	ReasonWaitsForEvent   ReasonCode = "waits_for_event"   // it waits for an event in a durable step
	ReasonQueuePaused     ReasonCode = "queue_paused"      // somebody has paused its queue
	ReasonKindPaused      ReasonCode = "kind_paused"       // somebody has paused its kind, or jobq itself: a quarantine
	ReasonKeyPaused       ReasonCode = "key_paused"        // somebody has paused its partition key
	ReasonTableLocked     ReasonCode = "table_locked"      // a session has locked a table that claims write to
	ReasonRowLocked       ReasonCode = "row_locked"        // a session has locked the job's row, which claims pass by
	ReasonNoWorker        ReasonCode = "no_worker"         // no live worker serves its queue
	ReasonNoWorkerOfKind  ReasonCode = "no_worker_of_kind" // those that do have no handler of its kind
	ReasonWorkersHeld     ReasonCode = "workers_held"      // somebody holds the hosts of those that have one
	ReasonKindInTrouble   ReasonCode = "kind_in_trouble"   // those that have one cannot start its programs now
	ReasonQueueLimit      ReasonCode = "queue_limit"       // as many jobs of its queue run as its limit allows
	ReasonKeyLimit        ReasonCode = "key_limit"         // as many jobs of its partition key run as its queue allows for each
	ReasonKeyRate         ReasonCode = "key_rate"          // the rate of its partition key lets no job of the key start yet
	ReasonKeyHead         ReasonCode = "key_head"          // the jobs of its partition key run in order, and another one is the next
	ReasonQueueRate       ReasonCode = "queue_rate"        // its queue's rate lets no job start yet
	ReasonWorkersFull     ReasonCode = "workers_full"      // those that can hold as many jobs as they have slots
	ReasonKindFull        ReasonCode = "kind_full"         // its kind has slots of its own in those that can, and these are taken
	ReasonNextInLine      ReasonCode = "next_in_line"      // nothing holds it up but the jobs before it
	ReasonRunning         ReasonCode = "running"           // it runs
	ReasonCancelRequested ReasonCode = "cancel_requested"  // it runs, and somebody has asked for it to stop
	ReasonLeaseExpired    ReasonCode = "lease_expired"     // its worker has not extended its lease, and a janitor is to take it back
	ReasonNoLease         ReasonCode = "no_lease"          // its row says that it runs, but no lease holds it: a row that jobq has not written
	ReasonCompleted       ReasonCode = "completed"
	ReasonFailed          ReasonCode = "failed" // for good
	ReasonCancelled       ReasonCode = "cancelled"
	ReasonDeleted         ReasonCode = "deleted" // the audit remembers by whom
	ReasonGone            ReasonCode = "gone"    // the id was given once, and there is no such job any more
	ReasonUnknown         ReasonCode = "unknown" // the id has never been given
)

// Missing says whether the reason is that there is no such job.
func (c ReasonCode) Missing() bool {
	return c == ReasonDeleted || c == ReasonGone || c == ReasonUnknown
}

// Reason is a reason with its facts. Which facts there are depends on the reason:
// docs/sql.md lists them. The others are zero.
type Reason struct {
	Code  ReasonCode  `json:"reason"`
	Facts ReasonFacts `json:"facts"`
}

// ReasonFacts are the facts of a reason. Moments are by the database's clock.
type ReasonFacts struct {
	Queue        string     `json:"queue,omitempty"`
	Kind         string     `json:"kind,omitempty"`
	PartitionKey string     `json:"partition_key,omitempty"`
	Since        *time.Time `json:"since,omitempty"` // since when it is so
	Until        *time.Time `json:"until,omitempty"` // when the job may run, or the next job of a queue or a key with a rate may start; of a lease, when it ends
	By           string     `json:"by,omitempty"`    // who did it, where the audit knows
	Note         string     `json:"note,omitempty"`  // and why
	Audit        int64      `json:"audit,omitempty"` // the id of the action

	// Parents are the first 10 jobs that it waits for, and ParentsOpen how many there are:
	// 10,001 stands for more. Of a job that was cancelled with a parent, they are that parent.
	Parents     []ReasonParent `json:"parents,omitempty"`
	ParentsOpen int64          `json:"parents_open,omitempty"`
	// Cause is the job that began it, if a job was cancelled with a parent: the parent itself, or, if that was
	// cancelled with its own parent, the first of these, over 100 jobs at most.
	Cause *ReasonCause `json:"cause,omitempty"`

	// Step is the durable step that a job sleeps in, or the event that it waits for, and
	// StepUntil until when at most; nil for an event without a timeout.
	Step      string     `json:"step,omitempty"`
	StepUntil *time.Time `json:"step_until,omitempty"`

	Attempts    int          `json:"attempts,omitempty"` // that have failed
	MaxAttempts int          `json:"max_attempts,omitempty"`
	Lost        int          `json:"lost,omitempty"`     // runs that were lost without using an attempt
	MaxLost     int          `json:"max_lost,omitempty"` // how many may be; 0 where nobody says so any more
	Error       string       `json:"error,omitempty"`    // of the last attempt; of a kind in trouble, what the trouble is
	Outcome     jobq.Outcome `json:"outcome,omitempty"`  // of the last run on record
	OutcomeAt   *time.Time   `json:"outcome_at,omitempty"`

	// Crashes is how many times in a row workers have crashed that ran a paused kind, or how many
	// times in a row a job was lost with its worker. CrashesAlone is how often nothing else ran there.
	Crashes      int `json:"crashes,omitempty"`
	CrashesAlone int `json:"crashes_alone,omitempty"`

	Running int64   `json:"running,omitempty"` // jobs of a queue, or of a partition key, that is at its limit
	Holders []int64 `json:"holders,omitempty"` // those of a partition key, the first 20, longest first
	Limit   int64   `json:"limit,omitempty"`
	// Head is the job that a partition key has to wait for, and HeadState what it does: running,
	// retry (it waits for that, until Until), waiting (for other jobs), failed, or available.
	Head      int64      `json:"head,omitempty"`
	HeadState string     `json:"head_state,omitempty"`
	Rate      *jobq.Rate `json:"rate,omitempty"` // with its burst

	Host    string `json:"host,omitempty"`    // the first of those that are held
	Workers int64  `json:"workers,omitempty"` // live ones: heard within 30 seconds, and not draining
	// WorkersUnknown is how many of them are of an earlier version, which does not tell of the slots of
	// kinds, if no other worker has room: whether these have room is not known.
	WorkersUnknown int64    `json:"workers_unknown,omitempty"`
	Silent         int64    `json:"silent,omitempty"`   // workers of the queue that were not heard
	Draining       int64    `json:"draining,omitempty"` // workers of the queue that drain
	Kinds          []string `json:"kinds,omitempty"`    // that the live workers have, up to 20
	KindsTotal     int64    `json:"kinds_total,omitempty"`
	Slots          int64    `json:"slots,omitempty"` // that the job can have in these workers: its kind's, where it has slots of its own
	Held           int64    `json:"held,omitempty"`  // jobs in these slots, and claimed ahead for them
	// Before is how many jobs are before this one in its line, which is that of its PartitionKey, or that of the jobs
	// without one. More than BeforeMax are not counted: one more stands for all.
	Before    *int64 `json:"before,omitempty"`
	BeforeMax int64  `json:"before_max,omitempty"`
	// KeysBefore is how many partition keys have their turn before the job's. KeysNew is how many get
	// theirs together with it, in an order that is not known yet, because their jobs have come since the
	// last claim. More than KeysBeforeMax are not counted: one more stands for all. They are nil for a
	// job without a key, for one whose key is at its limit or has to wait for its head, and where they
	// are not known.
	KeysBefore    *int64 `json:"keys_before,omitempty"`
	KeysNew       *int64 `json:"keys_new,omitempty"`
	KeysBeforeMax int64  `json:"keys_before_max,omitempty"`
	// KeyWeight is the weight of the job's partition key, where it has one and what is before the job is told; else 0.
	KeyWeight int64 `json:"key_weight,omitempty"`
	// KeyGroup is the group of the job's partition key, in a queue with a key separator, and KeyGroupWeight its weight, where it
	// has one; else 0. KeysBefore is nil then: keys that come later may have their turns before this one.
	KeyGroup       string `json:"key_group,omitempty"`
	KeyGroupWeight int64  `json:"key_group_weight,omitempty"`
	// KeysTakeTurns says of a job without a key that keys take turns with such jobs.
	KeysTakeTurns bool `json:"keys_take_turns,omitempty"`
	// Oldest is the job that was claimed first of those in full slots, or
	// that run of a queue at its limit.
	Oldest       int64      `json:"oldest,omitempty"`
	OldestSince  *time.Time `json:"oldest_since,omitempty"`
	OldestWorker string     `json:"oldest_worker,omitempty"`

	Worker string `json:"worker,omitempty"` // that has the job, or had it last
	// HeardAt is the worker's last heartbeat, or the last of all workers of the queue
	// when none of them is live; nil for workers that have signed off.
	HeardAt        *time.Time `json:"heard_at,omitempty"`
	WorkerDraining bool       `json:"worker_draining,omitempty"`
	ReapedFrom     *time.Time `json:"reaped_from,omitempty"` // when a janitor may take the lease away: with the queue's stale grace
	LostAt         *time.Time `json:"lost_at,omitempty"`     // when a janitor that has begun to last looked
	NotBegun       bool       `json:"not_begun,omitempty"`   // the worker has claimed it ahead
	ProgressedAt   *time.Time `json:"progressed_at,omitempty"`
	Percent        float32    `json:"percent,omitempty"`
	Stage          string     `json:"stage,omitempty"`
	Message        string     `json:"message,omitempty"`
	Lease          int64      `json:"lease,omitempty"`

	// Janitor says whether a session holds the janitor's lock at this moment; nil where
	// that cannot be known, as on a standby.
	Janitor *bool       `json:"janitor,omitempty"`
	Session *ReasonLock `json:"session,omitempty"`

	ArgsGone  bool  `json:"args_gone,omitempty"`  // so that it cannot be requeued
	KeyHolder int64 `json:"key_holder,omitempty"` // another job with its unique key, likewise
	// KeyUntil is when the unique key will be free that the job, or KeyHolder, has although it is over.
	KeyUntil *time.Time `json:"key_until,omitempty"`

	LastID           int64 `json:"last_id,omitempty"`           // the last id that was given
	RetentionSeconds int64 `json:"retention_seconds,omitempty"` // for how long jobs are kept that have ended
}

// ReasonParent is a job that another one waits for.
type ReasonParent struct {
	ID        int64              `json:"id"`
	State     jobq.State         `json:"state,omitempty"` // empty when it is gone
	OnFailure jobq.ParentFailure `json:"on_failure"`      // what is to become of the job that waits
}

// ReasonCause is a job because of which others were cancelled, as it is now.
type ReasonCause struct {
	ID    int64      `json:"id"`
	State jobq.State `json:"state,omitempty"` // empty when it is gone
	Error string     `json:"error,omitempty"` // its last one
	By    string     `json:"by,omitempty"`    // who cancelled it, where the audit knows
	Note  string     `json:"note,omitempty"`  // and why
}

// ReasonLock is who holds a lock.
type ReasonLock struct {
	PID         int        `json:"pid,omitempty"`      // of the server's process; 0 for a prepared transaction
	Prepared    string     `json:"prepared,omitempty"` // the name of a prepared transaction
	Role        string     `json:"role,omitempty"`
	Application string     `json:"application,omitempty"`
	State       string     `json:"state,omitempty"` // active, idle in transaction
	Since       *time.Time `json:"since,omitempty"` // when its transaction began
	Query       string     `json:"query,omitempty"` // its current or last one, the first 200 characters
	Table       string     `json:"table,omitempty"` // that is locked as a whole
	Mode        string     `json:"mode,omitempty"`
	// Hidden says that PostgreSQL shows this role no more: see pg_read_all_stats.
	Hidden bool `json:"hidden,omitempty"`
}

// Why returns why a job is not running, from the rows that a claim looks at: a
// reason or several, each of which holds by itself. A job that runs or has ended gets
// a reason that says so, and so does an id without a job. All rows are of one
// snapshot, while locks and sessions are as they are at the moment. It fails with
// ErrInvalid for an id below 1. It is quick however many jobs there are.
func (m *Monitor) Why(ctx context.Context, id int64) ([]Reason, error) {
	what := fmt.Sprintf("why job %d is not running", id)
	rows, err := m.queries.WhyList(ctx, id)
	if err != nil {
		return nil, dberror.Wrap(m.schema, what, err)
	}
	reasons := make([]Reason, len(rows))
	for i, row := range rows {
		reasons[i].Code = ReasonCode(row.Reason)
		if json.Unmarshal(row.Facts, &reasons[i].Facts) != nil {
			if reasons[i].Facts, err = factsByOne(row.Facts); err != nil {
				return nil, fmt.Errorf("%s: facts of %s: %w", what, row.Reason, err)
			}
		}
	}
	return reasons, nil
}

// factsByOne reads facts of which one cannot be read, such as a time that is infinite. It leaves that one out.
func factsByOne(stored json.RawMessage) (facts ReasonFacts, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(stored, &members); err != nil {
		return facts, err
	}
	for name, value := range members {
		kept := facts
		one, err := json.Marshal(map[string]json.RawMessage{name: value})
		if err != nil || json.Unmarshal(one, &facts) != nil {
			facts = kept
		}
	}
	return facts, nil
}
