package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
)

// tickMsg is the UI's clock: it ages what is shown and starts due queries.
type tickMsg time.Time

// loadedMsg is the answer to a panel's query. An old generation's answers a
// question that nobody asks any more.
type loadedMsg struct {
	panel      panel
	generation int
	took       time.Duration
	value      any
	err        error
}

// answerMsg is what came of a command that was begun at a database.
type answerMsg struct {
	link   *link
	answer tea.Msg
}

// actedMsg is what came of an action.
type actedMsg struct {
	verb  string
	acted *jobq.Acted
	err   error
}

// queueActedMsg is what came of an action on a queue.
type queueActedMsg struct {
	queue, verb string
	changed     bool
	err         error
}

// bulkMsg is how far a bulk action has come; done with the last one.
type bulkMsg struct {
	run      *bulkRun
	progress jobq.BulkProgress
	done     bool
	err      error
}

// jobEvent is what a worker says about one job.
type jobEvent struct {
	id, token   int64
	queue, kind string
	state       jobq.State
	attempts    int
	percent     float32
	stage       string
	took        time.Duration
}

// feedMsg is what workers have said since the one before: at most one a tick.
type feedMsg struct {
	at     time.Time
	events []jobEvent
	ended  map[string]endedCount // by queue
	lag    time.Duration         // from the worker's clock to ours
	gap    bool                  // something was not heard: look again
}

// endedCount is how many runs have ended, and how many of them not well.
type endedCount struct{ completed, failed int64 }

// panicMsg is a panic of a goroutine that the program does not know.
type panicMsg struct {
	reason any
	stack  []byte
}

// feedStateMsg says whether events are heard.
type feedStateMsg struct {
	state  feedState
	reason string
}

type feedState int

const (
	feedOff feedState = iota
	feedPolling
	feedLive
)
