package db

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// The ends of all priorities, which are smallints.
const (
	beforeAllPriorities = math.MinInt16 - 1
	lastPriority        = math.MaxInt16
	// lineMax is how many priorities a Line remembers: each costs every claim a
	// descent of the index.
	lineMax = 32
)

// Line is how far a worker has claimed the line of one queue, by priority: the
// position of the last job that it has got. Jobs that others got before that,
// or that nobody here has a handler for, lie behind it too. So may jobs that
// came into the line late: their transaction took long to commit, or they were
// given back to their old place. Hence the whole line must be looked at now and
// then; see WholeLine. It remembers the lineMax priorities that it has got the
// youngest jobs of, and looks at the others from their beginning.
type Line map[int16]int64

// Advance takes claimed jobs into account.
func (l Line) Advance(claimed []JobClaimRow) {
	for _, job := range claimed {
		l[job.Priority] = max(l[job.Priority], job.Position.Int64)
	}
	if len(l) <= lineMax {
		return
	}
	youngest := slices.SortedFunc(maps.Keys(l), func(a, b int16) int { return cmp.Compare(l[b], l[a]) })
	for _, priority := range youngest[lineMax:] {
		delete(l, priority)
	}
}

// Covered is how far a look has come that began at from and was filled: what lies
// between that and the line it may have left.
func (l Line) Covered(from Line, claimed []JobClaimRow) Line {
	last := slices.MaxFunc(claimed, func(a, b JobClaimRow) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Position.Int64, b.Position.Int64))
	})
	covered := make(Line, len(l))
	for priority, position := range l {
		switch {
		case priority < last.Priority:
			covered[priority] = position
		case priority == last.Priority:
			covered[priority] = min(position, last.Position.Int64)
		case from[priority] > 0:
			covered[priority] = from[priority]
		}
	}
	return covered
}

// Rest makes the claim look at what lies beyond. Whatever priority a job has,
// one of the segments has its place.
func (l Line) Rest(claim *JobClaimParams) {
	claim.FromPriorities, claim.FromPositions, claim.ToPriorities = nil, nil, nil
	add := func(priority int32, position int64, to int32) {
		claim.FromPriorities, claim.FromPositions = append(claim.FromPriorities, priority), append(claim.FromPositions, position)
		claim.ToPriorities = append(claim.ToPriorities, to)
	}
	from, position := int32(beforeAllPriorities), int64(0)
	for _, priority := range slices.SortedFunc(maps.Keys(l), cmp.Compare) {
		add(from, position, int32(priority)-1)
		from, position = int32(priority), l[priority]
	}
	add(from, position, lastPriority)
}

// WholeLine makes the claim look at all of the line, from its head.
func WholeLine(claim *JobClaimParams) { Line(nil).Rest(claim) }
