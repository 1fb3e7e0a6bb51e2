package worker

import (
	"maps"
	"slices"
)

// Health says whether a worker can do its work now.
type Health struct {
	// Claiming says that the worker has found its database and takes new jobs: not
	// before that, not while it drains, and not while it is held.
	Claiming bool
	Draining bool
	// Held says that an operator holds the host: nothing is claimed until it is released.
	Held bool
	// DatabaseAway says that the last call to the database failed.
	DatabaseAway bool
	// Notified says that notifications of new jobs arrive: not while the connection that
	// listens is lost. Without them the worker polls, which is slower and no fault.
	Notified bool
	// Extending says that the leases it holds are being extended. If not, they are
	// lost when they end.
	Extending bool
	// Unreached are the kinds whose handlers cannot be reached, with the reason: programs
	// that cannot be started, servers that do not answer. Nil for none.
	Unreached map[string]string
	// Resting are the kinds that the worker leaves to others for now, with the reason: its own runs of them fail
	// one after the other. Nil for none.
	Resting map[string]string
	// Connections are those of the worker's own pool: all, those in use, and the
	// most that there may be. 0 before the worker has found its database.
	Connections, ConnectionsInUse, ConnectionsMax int
}

// Problems says in words what keeps the worker from its work; nil if nothing does.
func (h Health) Problems() []string {
	var problems []string
	switch {
	case h.Draining:
		problems = append(problems, "draining: no new jobs are claimed")
	case h.Held:
		problems = append(problems, "held: no new jobs are claimed until the host is released")
	case !h.Claiming:
		problems = append(problems, "not started: no jobs are claimed yet")
	}
	if h.DatabaseAway {
		problems = append(problems, "the database does not answer")
	}
	if !h.Extending {
		problems = append(problems, "leases are not being extended")
	}
	for _, kind := range slices.Sorted(maps.Keys(h.Unreached)) {
		problems = append(problems, "kind "+kind+": its handler cannot be reached: "+h.Unreached[kind])
	}
	return problems
}

// Health returns how the worker is now. It does not talk to the database.
func (w *Worker) Health() Health {
	claims := w.claiming.Load()
	h := Health{
		Draining: w.draining.Load(), Held: w.isHeld(), DatabaseAway: w.away.Load(),
		Notified: claims && w.present.Load(), Extending: w.keeper.isExtending(), Unreached: w.externals.unreached(),
	}
	h.Claiming = claims && !h.Draining && !h.Held
	if troubles := w.troubles(); len(troubles) > 0 {
		h.Resting = troubles
	}
	if claims { // the pool is there
		stat := w.pool.Stat()
		h.Connections, h.ConnectionsInUse, h.ConnectionsMax = int(stat.TotalConns()), int(stat.AcquiredConns()), int(stat.MaxConns())
	}
	return h
}

// isExtending says whether the last extension has worked, unless no lease is
// held any more that needs one.
func (k *keeper) isExtending() bool {
	if !k.failing.Load() {
		return true
	}
	_, holding := k.held.NextDeadline()
	return !holding
}
