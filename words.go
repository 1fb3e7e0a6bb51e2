package jobq

// Outcome is how a run ended.
type Outcome string

// The outcomes of a run. Failed, timed out and lost count against max_attempts.
const (
	OutcomeCompleted Outcome = "completed"
	OutcomeFailed    Outcome = "failed"
	OutcomeTimedOut  Outcome = "timed_out"
	OutcomeLost      Outcome = "lost"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeReleased  Outcome = "released"
	OutcomeSnoozed   Outcome = "snoozed"
	// OutcomeUnreadable: the job's args or checkpoint could not be decoded, and no handler was called.
	OutcomeUnreadable Outcome = "unreadable"
)

// Heartbeat is what extends the leases of a queue.
type Heartbeat string

// The heartbeats.
const (
	// HeartbeatTicker: the worker, for as long as it lives. The default. A
	// handler that hangs is the business of the job's timeout.
	HeartbeatTicker Heartbeat = "ticker"
	// HeartbeatProgress: the handler's own reports of progress and checkpoints
	// alone, so that a handler that hangs loses its lease.
	HeartbeatProgress Heartbeat = "progress"
	// HeartbeatBoth: either of the two.
	HeartbeatBoth Heartbeat = "both"
	// HeartbeatOff: nothing. The lease is the longest that a run may take.
	HeartbeatOff Heartbeat = "off"
)

// Redelivery is where a job goes in its queue's line when its lease was taken
// away.
type Redelivery string

// The redeliveries.
const (
	// RedeliveryTail: behind all that waits, the default.
	RedeliveryTail Redelivery = "tail"
	// RedeliveryHead: back to the place that it had.
	RedeliveryHead Redelivery = "head"
)

// KeyOrder says whether the jobs of each partition key of a queue run in order, and what a job
// that fails does to those behind it.
type KeyOrder string

// The orders.
const (
	// KeyOrderNone: in no strict order, the default.
	KeyOrderNone KeyOrder = ""
	// KeyOrderHold: a job that waits for its retry holds its key, until it has ended.
	KeyOrderHold KeyOrder = "hold"
	// KeyOrderPass: a job that waits for its retry lets the next ones pass.
	KeyOrderPass KeyOrder = "pass"
	// KeyOrderStop: as KeyOrderHold, and a job that has failed for good stops its key until
	// it is requeued or deleted.
	KeyOrderStop KeyOrder = "stop"
)

// KeyWeightMax is the largest weight of a partition key.
const KeyWeightMax = 100

// Action is what a person does to jobs, queues, partition keys, kinds, workers or hosts, as the audit names it; and
// ActionKindPause what jobq does itself, as the actor "jobq".
type Action string

// The actions. Package operator takes them.
const (
	ActionRequeue  Action = "requeue"
	ActionCancel   Action = "cancel"
	ActionDelete   Action = "delete"
	ActionEdit     Action = "edit"
	ActionClone    Action = "clone"
	ActionPause    Action = "pause"
	ActionResume   Action = "resume"
	ActionDrain    Action = "drain"
	ActionLost     Action = "lost" // a worker that does not come back
	ActionSettings Action = "settings"
	ActionExport   Action = "export" // of a day of the history
	ActionUndo     Action = "undo"

	ActionKindPause  Action = "kind_pause"
	ActionKindResume Action = "kind_resume"
	// ActionKindSettings is a change of a kind's settings.
	ActionKindSettings Action = "kind_settings"

	ActionKeyPause  Action = "key_pause" // of a partition key of a queue
	ActionKeyResume Action = "key_resume"
	ActionKeyWeight Action = "key_weight"

	ActionScheduleSet    Action = "schedule_set"
	ActionSchedulePause  Action = "schedule_pause"
	ActionScheduleResume Action = "schedule_resume"
	ActionScheduleRemove Action = "schedule_remove"
	ActionScheduleRun    Action = "schedule_run"

	ActionHostHold    Action = "host_hold" // its workers claim nothing
	ActionHostRelease Action = "host_release"
)
