package worker

import "slices"

// divideQueues gives each kind with slots of its own a queue of its own, with
// the same name: a claim then never takes more of the kind than can run, and
// the others need not wait behind it.
func (w *Worker) divideQueues() {
	for _, q := range w.queues {
		q.apart = make(map[string]*queue, len(w.kindSlots))
		for kind, slots := range w.kindSlots {
			q.apart[kind] = newQueue(w, q.name, slots)
			q.apart[kind].kinds = []string{kind}
		}
		q.kinds = slices.DeleteFunc(slices.Clone(w.claims), func(kind string) bool { return w.kindSlots[kind] > 0 })
	}
}

// all are the queue and those divided from it. One without kinds has nothing
// to do.
func (q *queue) all() []*queue {
	all := make([]*queue, 0, 1+len(q.apart))
	if len(q.kinds) > 0 {
		all = append(all, q)
	}
	for _, each := range q.apart {
		all = append(all, each)
	}
	return all
}

// hasRoom says whether the worker would hear of a job, and take it.
func (w *Worker) hasRoom() bool {
	if w.deaf.Load() {
		return false
	}
	for _, q := range w.queues {
		if slices.ContainsFunc(q.all(), (*queue).hasRoom) {
			return true
		}
	}
	return false
}
