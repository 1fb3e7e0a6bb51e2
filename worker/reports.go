package worker

import (
	"encoding/json"
	"sync"

	"github.com/jobq-dev/jobq/internal/db"
)

// reports holds what a run has reported until it is stored. The handler reports from any of its
// goroutines. The keeper takes the progress while the handler runs, and the end of the run takes
// the rest.
type reports struct {
	mu sync.Mutex // never held during a call to the database
	// guarded by mu
	progress   *db.RunProgressParams // not yet stored
	checkpoint json.RawMessage       // what this run has saved last; nil for nothing
	over       bool                  // the run has ended: later reports are not stored
	kept       kept
}

// kept is what is stored with the end of a run.
type kept struct {
	onRow  bool            // progress or a checkpoint has been stored, or is on its way: the run ends on its own row
	result json.RawMessage // as it is stored
	output string
	usage  json.RawMessage
}

// progressed keeps a report of progress. Fields that it does not set keep their values from an
// earlier report that is not stored yet.
func (r *reports) progressed(report *db.RunProgressParams) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress != nil { // not stored yet
		complete(report, r.progress)
	}
	r.progress = report
}

// putBack keeps a report that could not be stored for the next try.
func (r *reports) putBack(report *db.RunProgressParams) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress == nil {
		r.progress = report
		return
	}
	complete(r.progress, report)
}

// takeProgress removes and returns the progress that is not stored yet; nil for none.
func (r *reports) takeProgress() *db.RunProgressParams {
	r.mu.Lock()
	defer r.mu.Unlock()
	progress := r.progress
	r.progress = nil
	if r.over {
		return nil
	}
	r.kept.onRow = r.kept.onRow || progress != nil
	return progress
}

func (r *reports) hasProgress() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress != nil
}

// lastProgress is progress that is not stored yet; empty for none.
func (r *reports) lastProgress() (last db.RunProgressParams) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress != nil {
		last = *r.progress
	}
	return last
}

// endOnRow makes the run end on its own row and not in its lease, since a report is about to be
// stored there.
func (r *reports) endOnRow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.onRow = true
}

func (r *reports) setCheckpoint(checkpoint json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checkpoint = checkpoint
}

func (r *reports) savedCheckpoint() json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checkpoint
}

// keep changes what is stored with the end.
func (r *reports) keep(change func(k *kept)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.kept)
}

// soFar is what would be stored if the run ended now.
func (r *reports) soFar() kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept
}

// end returns what to store with the end of the run. Later reports are not stored.
func (r *reports) end() kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	return r.kept
}

// complete copies the fields that a later report does not set from an earlier one.
func complete(later, earlier *db.RunProgressParams) {
	if later.Percent == nil {
		later.Percent = earlier.Percent
	}
	if later.Stage == nil {
		later.Stage = earlier.Stage
	}
	if later.Message == nil {
		later.Message = earlier.Message
	}
}
