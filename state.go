package jobq

// State is where a job is in its life; see the package documentation.
type State string

// The states of a job.
const (
	StateWaiting   State = "waiting" // for other jobs: see EnqueueOptions.After
	StateScheduled State = "scheduled"
	StateAvailable State = "available"
	StateRunning   State = "running"
	StateCompleted State = "completed"
	StateFailed    State = "failed"
	StateCancelled State = "cancelled"
)

// StateDeleted stands for the state after a delete, where an operator's action is
// recorded. No job has it.
const StateDeleted = "deleted"

// States are all states of jobs, in the order of a job's life.
func States() []State {
	return []State{StateWaiting, StateScheduled, StateAvailable, StateRunning, StateCompleted, StateFailed, StateCancelled}
}
