package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// The jobs of ticks obey the limit and the order of their schedule's partition key: workers with
// room for many never have two of them at once, and with an order they run tick after tick, a failed one again before the
// next. Method: two schedules of one key have missed many ticks, which are all added at once.
func TestTicksObeyTheirKey(t *testing.T) {
	t.Parallel()
	const missed = 30
	for name, change := range map[string]operator.QueueChange{"limit": {KeyLimit: new(1)}, "order": {KeyOrder: new(jobq.KeyOrderHold)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			client := newClient(t)
			setQueue(t, client, change)
			o := operator.New(client, "ann")
			for _, schedule := range []string{"a", "b"} {
				_, err := o.SetSchedule(ctx, jobq.Schedule{
					Name: schedule, Every: 24 * time.Hour, Kind: "task", PartitionKey: "ledger",
					CatchUp: jobq.CatchUpAll, CatchUpWithin: 2 * missed * 24 * time.Hour,
					BackoffBase: time.Millisecond, BackoffMax: time.Millisecond,
				})
				require.NoError(t, err)
			}
			_, err := client.Pool().Exec(ctx, "update jobq.schedule set cursor_at = date_trunc('day', now(), 'UTC') - $1 * interval '1 day' + interval '1 s'", missed)
			require.NoError(t, err)
			var mu sync.Mutex
			var wrong []string
			ran := make(map[string][]string) // ticks, by schedule
			failed := make(map[int64]bool)
			for range 2 {
				start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 8}}}, func(ctx context.Context, job *worker.Job[task]) error {
					var of struct{ Schedule, Tick string }
					var open int
					err := client.Pool().QueryRow(ctx, `select metadata ->> 'schedule', metadata ->> 'tick', (select count(*) from jobq.job o where o.state = 'running')
						from jobq.job where id = $1`, job.ID()).Scan(&of.Schedule, &of.Tick, &open)
					mu.Lock()
					defer mu.Unlock()
					if open > 1 || job.PartitionKey() != "ledger" {
						wrong = append(wrong, fmt.Sprintf("%d jobs run beside the tick %s of %s, with the key %q", open-1, of.Tick, of.Schedule, job.PartitionKey()))
					}
					if err == nil && name == "order" && !failed[job.ID()] && len(ran[of.Schedule])%5 == 0 {
						failed[job.ID()] = true
						return errors.New("fails once")
					}
					ran[of.Schedule] = append(ran[of.Schedule], of.Tick)
					return err
				})
			}
			startJanitor(t, client)
			require.Eventually(t, func() bool {
				return number(t, client, "select count(*) from jobq.job where state = 'completed'") >= 2*missed
			}, patience, 5*time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			require.Empty(t, wrong[:min(len(wrong), 5)])
			for schedule, ticks := range ran {
				require.GreaterOrEqual(t, len(ticks), missed, "%s: one more if a day has begun meanwhile", schedule)
				if name == "order" {
					require.IsIncreasing(t, ticks, schedule)
				}
			}
		})
	}
}
