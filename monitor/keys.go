package monitor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/storable"
)

// KeyState says what becomes of the next job of a partition key.
type KeyState string

// The states.
const (
	KeyReady KeyState = "ready" // it may be claimed when it is the key's turn
	KeyFull  KeyState = "full"  // as many jobs of the key run as the queue allows for each
	// KeyThrottled: the rate of the queue's keys lets no job of the key start yet.
	KeyThrottled KeyState = "throttled"
	KeyHeld      KeyState = "held" // the queue has an order, and the key has to wait for its head
	KeyIdle      KeyState = "idle" // there is none: nothing of the key is in the line
	// KeyPaused: somebody has paused the key, whether it has jobs or not.
	KeyPaused KeyState = "paused"
)

// Key is a partition key of a queue of which jobs are in the line, or run, or that is paused or has a weight.
type Key struct {
	Key   string   `json:"key"`
	State KeyState `json:"state"`
	// Available is counted up to KeyAvailableMax, which then means "at least as many".
	Available int64 `json:"available"`
	Running   int64 `json:"running"`
	// OldestRunAt is since when the one of the counted jobs in the line could have run that has
	// waited longest; nil for none.
	OldestRunAt *time.Time `json:"oldest_run_at,omitempty"`
	// Weight is how many of its jobs start where one of a key without a weight does: 1 for such a key.
	Weight int `json:"weight"`
	// Head is the job that the next one of the key has to wait for, in a queue with an order; 0 for none.
	// HeadState says what it does: running, retry (it waits for that, until HeadUntil), waiting (for
	// other jobs), or failed.
	Head      int64      `json:"head,omitempty"`
	HeadState string     `json:"head_state,omitempty"`
	HeadUntil *time.Time `json:"head_until,omitempty"`
	// ThrottledUntil is when the next job of the key may start, if a rate keeps it from starting now.
	ThrottledUntil *time.Time `json:"throttled_until,omitempty"`
	// PausedAt is since when the key is paused, nil: it is not; with who paused it, and why.
	PausedAt    *time.Time `json:"paused_at,omitempty"`
	PausedBy    string     `json:"paused_by,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
}

// Keys are some of the partition keys of a queue.
type Keys struct {
	Keys []Key `json:"keys"` // in the order in which the database sorts texts
	// Next is what KeyQuery.After is for those that follow; empty when there are no more.
	Next string `json:"next,omitempty"`
	// MoreRun says that more than KeyRunsMax jobs of the queue run and that it has no limit for its
	// keys: then only those were counted that were claimed first.
	MoreRun bool `json:"more_run,omitempty"`
}

const (
	// KeyAvailableMax is up to how many jobs in the line Keys counts of each key.
	KeyAvailableMax = 1000
	// KeyRunsMax is how many running jobs Keys looks at, in a queue without a limit for its keys.
	KeyRunsMax = 10_000
	// KeysMax is the most keys that one call returns.
	KeysMax = 1000
	// keysDefault is how many it returns unless told otherwise.
	keysDefault = 100
)

// KeyQuery says which partition keys are wanted.
type KeyQuery struct {
	Queue string // needed
	After string // the first keys behind this one; empty for the first of all
	Limit int    // keys to look at, 1 to 1000; 0 means 100
}

// Keys returns the partition keys of a queue, and what waits and runs of each. A page may have
// fewer keys than the limit although others follow: Next says so. It costs the same however
// many keys and jobs the queue has. ErrInvalid for an empty queue, or a limit beyond its bounds.
func (m *Monitor) Keys(ctx context.Context, query KeyQuery) (Keys, error) {
	limit := cmp.Or(query.Limit, keysDefault)
	switch {
	case query.Queue == "":
		return Keys{}, fmt.Errorf("keys: %w: queue must not be empty", jobq.ErrInvalid)
	case limit < 1 || limit > KeysMax:
		return Keys{}, fmt.Errorf("keys: %w: limit must be 1 to %d, not %d", jobq.ErrInvalid, KeysMax, limit)
	}
	for name, text := range map[string]string{"queue": query.Queue, "after": query.After} {
		if err := storable.Text(name, text); err != nil {
			return Keys{}, fmt.Errorf("keys: %w: %w", jobq.ErrInvalid, err)
		}
	}
	rows, err := m.queries.KeyList(ctx, db.KeyListParams{
		Queue: query.Queue, AfterKey: query.After, AvailableMax: KeyAvailableMax, RunMax: KeyRunsMax,
		RowCount: int32(limit), // #nosec G115 -- checked above
	})
	if err != nil {
		return Keys{}, dberror.Wrap(m.schema, fmt.Sprintf("keys of queue %q", query.Queue), err)
	}
	keys := Keys{Keys: make([]Key, 0, len(rows))}
	for _, row := range rows {
		keys.MoreRun = row.MoreRun
		pausedAt := db.TimeOrNil(row.PausedAt)
		if row.Available == 0 && row.Running == 0 && pausedAt == nil && row.Weight == 1 { // which claims have yet to forget
			continue
		}
		key := Key{
			Key: row.Key, State: keyState(row), Available: row.Available, Running: row.Running, OldestRunAt: db.TimeOrNil(row.OldestRunAt),
			Weight: int(row.Weight),
			Head:   row.Head, HeadState: row.HeadWaits, HeadUntil: db.TimeOrNil(row.HeadUntil), ThrottledUntil: db.TimeOrNil(row.ThrottledUntil),
			PausedAt: pausedAt, PausedBy: row.PausedBy, PauseReason: row.PauseReason,
		}
		keys.Keys = append(keys.Keys, key)
	}
	if len(rows) == limit {
		keys.Next = rows[limit-1].Key
	}
	return keys, nil
}

// KeyWeights returns the weights of those of some partition keys of a queue that have one other than 1.
func (m *Monitor) KeyWeights(ctx context.Context, queue string, keys []string) (map[string]int, error) {
	for _, text := range append([]string{queue}, keys...) {
		if err := storable.Text("queue and keys", text); err != nil {
			return nil, fmt.Errorf("weights of keys: %w: %w", jobq.ErrInvalid, err)
		}
	}
	rows, err := m.queries.KeyWeightList(ctx, keys, queue)
	if err != nil {
		return nil, dberror.Wrap(m.schema, fmt.Sprintf("weights of keys of queue %q", queue), err)
	}
	weights := make(map[string]int, len(rows))
	for _, row := range rows {
		weights[row.Key] = int(row.Weight)
	}
	return weights, nil
}

func keyState(row db.KeyListRow) KeyState {
	switch {
	case db.TimeOrNil(row.PausedAt) != nil:
		return KeyPaused
	case row.Available == 0:
		return KeyIdle
	case row.KeyLimit > 0 && row.Running >= int64(row.KeyLimit):
		return KeyFull
	case row.Head > 0:
		return KeyHeld
	case db.TimeOrNil(row.ThrottledUntil) != nil:
		return KeyThrottled
	}
	return KeyReady
}
