package db

import (
	"context"
	"encoding/json"
)

// QueueEnsure is QueueSet that looks first whether the queue is so already: 0 when there was nothing to do, for which
// the right to read is enough. A program that sets its queues whenever it starts then needs jobq_admin only the first time.
func (q *Queries) QueueEnsure(ctx context.Context, actor, queue string, change json.RawMessage) (int64, error) {
	switch same, err := q.QueueIs(ctx, queue, change); {
	case err == nil && same:
		return 0, nil
	case err != nil && !IsForbidden(err): // who may not read may not set either: QueueSet says it
		return 0, err
	}
	return q.QueueSet(ctx, actor, queue, change)
}

// KindEnsure is KindSet that looks first whether the kind is so already, as QueueEnsure does. What is wrong with the
// change, KindSet says better.
func (q *Queries) KindEnsure(ctx context.Context, actor, kind string, change json.RawMessage) (int64, error) {
	if same, err := q.KindIs(ctx, change, kind); err == nil && same {
		return 0, nil
	}
	return q.KindSet(ctx, actor, kind, change)
}
