package monitor_test

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// serveApart registers a live worker of the kinds greeting and resize, in which one has so many slots of its own.
func (p planted) serveApart(id string, slots int, kind string, kindSlots int) {
	p.Helper()
	p.serve(id, slots, "greeting", "resize")
	p.exec("update jobq.worker set kind_slots = jsonb_build_object($2::text, $3::integer) where id = $1", id, kind, kindSlots)
}

// serveEarlier registers one of an earlier version, which does not tell of the slots of kinds.
func (p planted) serveEarlier(id string, slots int) {
	p.Helper()
	p.serve(id, slots, "greeting")
	p.exec("update jobq.worker set kind_slots = null where id = $1", id)
}

// claimKind adds so many jobs of a kind and has a worker claim them together, as for slots of the kind's own.
func (p planted) claimKind(worker, kind string, count int) []db.JobClaimRow {
	p.Helper()
	ctx := context.Background()
	for range count {
		_, err := p.Client.Enqueue(ctx, jobq.RawArgs{Name: kind, JSON: json.RawMessage("{}")}, &jobq.EnqueueOptions{Queue: "q"})
		require.NoError(p, err)
	}
	answer, err := p.Schema.Exchange(ctx, p.Client.Pool(), db.Exchange{Owner: worker, Queue: "q", Claim: &db.JobClaimParams{
		Lease: db.Interval(time.Hour), Owner: worker, Queue: "q", Kinds: []string{kind}, JobCount: int32(count), // #nosec G115 -- small
	}})
	require.NoError(p, err)
	require.Len(p, answer.Claimed, count)
	slices.SortFunc(answer.Claimed, func(a, b db.JobClaimRow) int { return cmp.Compare(a.ID, b.ID) })
	return answer.Claimed
}

// slotCases are about workers in which kinds have slots of their own. The jobs have the ids 1, 2, 3…
func slotCases() []whyCase {
	type codes = []monitor.ReasonCode
	hasRoom := []string{"it is next in line, and workers have room"}
	return []whyCase{
		{"the kind's slots full", func(p planted) int64 {
			p.serveApart("w", 10, "greeting", 2)
			p.serveApart("x", 10, "greeting", 1)
			p.serve("of another kind", 4, "resize")
			p.claimKind("w", "resize", 1)
			p.claimKind("w", "greeting", 2)
			p.claimKind("x", "greeting", 1)
			p.enqueue(jobq.EnqueueOptions{})
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonKindFull}, []string{"the slots of kind greeting are full: 3 jobs in 3 slots of 2 workers, the oldest is job 2, claimed ", "by w; 1 job is before it in the line"}, "jobq why 2"},
		{"the kind's slots full, and its queue at its limit", func(p planted) int64 {
			p.serveApart("w", 10, "greeting", 1)
			p.claimKind("w", "greeting", 1)
			p.limit(operator.QueueChange{MaxRunning: new(1)})
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonQueueLimit, monitor.ReasonKindFull}, nil, ""},
		{"the queue's slots full, and not the kind's own", func(p planted) int64 {
			p.serveApart("w", 2, "greeting", 2)
			p.claimKind("w", "resize", 2)
			p.claimKind("w", "greeting", 1)
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, hasRoom, ""},
		{"another kind's own slots full, and not the queue's", func(p planted) int64 {
			p.serveApart("w", 2, "resize", 2)
			p.claimKind("w", "resize", 2)
			p.claimKind("w", "greeting", 1)
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, hasRoom, ""},
		{"the queue's slots full, beside another kind's own", func(p planted) int64 {
			p.serveApart("w", 2, "resize", 2)
			p.claimKind("w", "resize", 1)
			p.claimKind("w", "greeting", 2)
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonWorkersFull}, []string{"the workers are full: 2 jobs in 2 slots of 1 worker, the oldest is job 2, claimed "}, "jobq why 2"},
		{"the kind's slots full in one worker, and the queue's in another", func(p planted) int64 {
			p.serveApart("w", 10, "greeting", 1)
			p.serve("x", 2, "greeting")
			p.claimKind("w", "greeting", 1)
			p.claimKind("x", "greeting", 2)
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonWorkersFull}, []string{"the workers are full: 3 jobs in 3 slots of 2 workers, the oldest is job 1, claimed "}, "jobq why 1"},
		{"one of the kind's slots free again", func(p planted) int64 {
			p.serveApart("w", 10, "greeting", 2)
			p.Complete(p.claimKind("w", "greeting", 2)[0])
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, hasRoom, ""},
		{"the kind's slots full, the first of a claim having ended", func(p planted) int64 {
			p.serveApart("w", 10, "greeting", 1)
			p.Complete(p.claimKind("w", "greeting", 2)[0])
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonKindFull}, []string{"1 job in 1 slot of 1 worker, the oldest is job 2"}, "jobq why 2"},
		{"workers of an earlier version, which do not tell", func(p planted) int64 {
			p.serveApart("w", 10, "greeting", 1)
			p.serveEarlier("old", 10)
			p.claimKind("w", "greeting", 1)
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, []string{"it is next in line; whether workers have room is not known: an earlier version of jobq, which 1 of them have"}, ""},
		{"a worker of an earlier version, and one with room", func(p planted) int64 {
			p.serveApart("w", 10, "greeting", 2)
			p.serveEarlier("old", 10)
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, hasRoom, ""},
	}
}
