package operator

import (
	"cmp"
	"container/heap"
	"context"
	"maps"
	"slices"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// ActedDependents is what a requeue came to on the jobs that wait for the requeued ones.
type ActedDependents struct {
	Requeued int `json:"requeued"` // jobs that wait again
	Refused  int `json:"refused"`  // jobs that stay cancelled
	// Problems are the first of those that stay cancelled, by their ids, at most 10, and why.
	Problems []ActedJob `json:"problems,omitempty"`
}

// RequeueWithDependents requeues up to 1000 jobs, as Act does, and then lets all jobs wait again
// that were cancelled because one of these had failed, was cancelled or deleted, and those that
// were cancelled with them. It leaves out jobs that somebody has cancelled, and jobs that run whatever
// becomes of their parents (jobq.ParentFailureRun). A job for which another parent has failed stays cancelled.
//
// It works in transactions of up to 500 jobs, and records all of them as one action, which can be undone as
// one. With an error, Acted has what was done before it: call it again to go on.
func (o *Operator) RequeueWithDependents(ctx context.Context, targets ...Target) (*Acted, error) {
	acted, err := o.act(ctx, db.JobActParams{Action: string(jobq.ActionRequeue)}, targets)
	if err != nil {
		return nil, err
	}
	walk := dependentsWalk{operator: o, audit: acted.AuditID, seen: map[int64]bool{}, problems: map[int64]ActedJob{}}
	for _, job := range acted.Jobs {
		if job.Problem == "" {
			heap.Push(&walk.parents, job.ID)
		}
	}
	err = walk.run(ctx)
	acted.Dependents = &ActedDependents{Requeued: walk.requeued, Refused: len(walk.problems)}
	problems := slices.SortedFunc(maps.Values(walk.problems), func(a, b ActedJob) int { return cmp.Compare(a.ID, b.ID) })
	acted.Dependents.Problems = append([]ActedJob(nil), problems[:min(len(problems), bulkProblemsMax)]...)
	return acted, dberror.Wrap(o.schema, "requeue dependents", err)
}

// dependentsWalk goes from jobs to those that wait for them. A job has a higher id than the jobs that it waits for. So
// the lowest ids come first, parents before children: of 11 <- 12 <- 14 and 11 <- 14, job 14 is asked for once 12 has come
// back. Where a child is met earlier all the same, it cannot come back yet, and is met again through its last parent.
type dependentsWalk struct {
	operator *Operator
	audit    int64
	parents  idHeap         // that have come back, and whose children have not been listed
	children idHeap         // that were cancelled with a parent, perhaps
	seen     map[int64]bool // those in children
	requeued int
	problems map[int64]ActedJob
}

func (w *dependentsWalk) run(ctx context.Context) error {
	for len(w.parents) > 0 || len(w.children) > 0 {
		if len(w.parents) > 0 && (len(w.children) == 0 || w.parents[0] < w.children[0]) {
			if err := w.list(ctx); err != nil {
				return err
			}
			continue
		}
		if err := w.requeue(ctx); err != nil {
			return err
		}
	}
	return nil
}

// parentsBatch is how many jobs one statement lists the children of: it reads up to bulkBatch of each.
const parentsBatch = 50

// list adds the children of the first parents.
func (w *dependentsWalk) list(ctx context.Context) error {
	parents := w.parents.take(parentsBatch)
	for after := int64(0); ; {
		rows, err := dberror.Retry(ctx, func() ([]db.DependentListRow, error) {
			return w.operator.queries.DependentList(ctx, parents, after, bulkBatch)
		})
		if err != nil {
			return err
		}
		for _, row := range rows {
			if after = row.ID; row.Lost && !w.seen[row.ID] {
				w.seen[row.ID] = true
				heap.Push(&w.children, row.ID)
			}
		}
		if len(rows) < bulkBatch {
			return nil
		}
	}
}

// requeue lets the first children wait again.
func (w *dependentsWalk) requeue(ctx context.Context) error {
	ids := w.children.take(bulkBatch)
	rows, err := dberror.Retry(ctx, func() ([]db.JobActDependentsRow, error) {
		return w.operator.queries.JobActDependents(ctx, w.operator.actor, ids, w.audit)
	})
	if err != nil {
		return err
	}
	for _, id := range ids {
		delete(w.seen, id)
	}
	for _, row := range rows {
		job := actedJob(db.JobActRow(row))
		if job.Problem != "" {
			w.problems[job.ID] = job
			continue
		}
		delete(w.problems, job.ID)
		w.requeued++
		heap.Push(&w.parents, job.ID)
	}
	return nil
}

// idHeap has the lowest id first.
type idHeap []int64

func (h idHeap) Len() int           { return len(h) }
func (h idHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h idHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *idHeap) Push(id any)       { *h = append(*h, id.(int64)) }

func (h *idHeap) Pop() any {
	last := len(*h) - 1
	id := (*h)[last]
	*h = (*h)[:last]
	return id
}

// take removes up to count ids.
func (h *idHeap) take(count int) (ids []int64) {
	for len(ids) < count && h.Len() > 0 {
		ids = append(ids, heap.Pop(h).(int64))
	}
	return ids
}
