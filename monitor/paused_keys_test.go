package monitor_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
)

// Paused keys hide no others: the age of a queue is that of a key behind more paused ones than the keys that are looked at,
// both where no claim has been made yet, and where the paused ones have still got their turns.
func TestQueueLagBehindPausedKeys(t *testing.T) {
	t.Parallel()
	const paused = 150 // of a single queue, 100 lines are looked at
	for name, plant := range map[string]func(p planted){
		"no claim yet": func(planted) {},
		"with their turns": func(p planted) {
			p.exec("insert into jobq.pending (kind, queue, partition_key) select 'greeting', 'q', 'a' || i from generate_series(1, 101) i")
			p.exec("insert into jobq.lane (queue, key, turn) select 'q', 'p' || i, i from generate_series(1, $1::integer) i", paused)
			p.exec("insert into jobq.lane (queue, key, turn) values ('q', 'z', 1000)")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := planted{jobtest.NewWorker(t)}
			p.exec("insert into jobq.pending (kind, queue, partition_key) select 'greeting', 'q', 'p' || i from generate_series(1, $1::integer) i", paused)
			p.exec("select jobq.act_key('me', 'key_pause', 'q', 'p' || i, null) from generate_series(1, $1::integer) i", paused)
			p.aged(7, jobq.EnqueueOptions{PartitionKey: "z"})
			plant(p)
			require.Equal(t, 7, p.lag())
		})
	}
}

// A key that was paused since the last claim keeps its turn until the next one, and yet is not before another key. One that
// goes on already is.
func TestWhyCountsNoPausedTurns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := planted{jobtest.NewWorker(t)}
	p.serve("w", 99, "greeting")
	keys := []string{"a", "b", "c", "d", "e"}
	ids := make(map[string]int64)
	for _, key := range keys {
		p.enqueue(jobq.EnqueueOptions{PartitionKey: key})
		ids[key] = p.enqueue(jobq.EnqueueOptions{PartitionKey: key})
	}
	before := func(key string) *int64 {
		reasons, err := p.Monitor.Why(ctx, ids[key])
		require.NoError(t, err)
		require.Equal(t, monitor.ReasonNextInLine, reasons[0].Code)
		return reasons[0].Facts.KeysBefore
	}
	p.claimKeyed(len(keys)) // one of each, and then all have their turns, in an order of the claim's
	order := make([]string, len(keys))
	for _, key := range keys {
		order[*before(key)] = key
	}
	last := order[4]
	pause := func(key string) { require.NoError(t, jobtest.ErrorOf(p.Operator.PauseKey(ctx, "q", key, ""))) }
	resume := func(key string) { require.NoError(t, jobtest.ErrorOf(p.Operator.ResumeKey(ctx, "q", key))) }
	pause(order[0])
	pause(order[2])
	pause("of no job")
	require.EqualValues(t, 2, *before(last))
	require.EqualValues(t, 0, *before(order[1]))
	resume(order[2])
	pause(order[2])
	require.EqualValues(t, 2, *before(last), "paused twice")
	resume(order[2])
	require.EqualValues(t, 3, *before(last), "it goes on")
	p.exec("select jobq.act_key('me', 'key_pause', 'q', 'other ' || i, null) from generate_series(1, 100) i")
	require.Nil(t, before(last), "more pauses than are read")
	p.exec("select jobq.lane_pause('q')") // as a claim does, which takes no job before it has heard of all pauses
	for i, key := range []string{order[1], order[2]} {
		require.Equal(t, ids[key], p.claimKeyed(1)[0].ID, "the claims agree")
		require.EqualValues(t, 1-i, *before(order[3]))
	}
}
