package child

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq"
)

const (
	scheduledAhead = time.Second
	// scheduledApart is enough for each to be alone, and no divisor of what a
	// janitor might round to.
	scheduledApart = 37 * time.Millisecond
)

// scheduled times jobs of jobq's from when they are due until they start. The
// server's clock is this machine's.
func (c *child) scheduled(ctx context.Context) error {
	client, err := jobq.NewClient(c.pool, nil)
	if err != nil {
		return err
	}
	end, arrived := Line{End: true}, make(chan float64, c.order.Samples)
	stop, err := c.system.start(ctx, c.pool, c.order, func(due int64) {
		arrived <- float64(time.Now().UnixMicro()-due) / 1e3
	})
	if err == nil {
		err = enqueueApart(ctx, client, c.order.Samples)
	}
	if err != nil {
		return err
	}
	for range c.order.Samples {
		end.SamplesMs = append(end.SamplesMs, <-arrived)
	}
	if err := stop(); err != nil {
		return err
	}
	return c.out.Encode(end)
}

// enqueueApart enqueues jobs that are due one after the other, and carry when.
func enqueueApart(ctx context.Context, client *jobq.Client, samples int) error {
	jobs := make([]jobq.EnqueueParams, samples)
	first := time.Now().Add(scheduledAhead)
	for i := range jobs {
		due := first.Add(time.Duration(i) * scheduledApart)
		jobs[i] = jobq.EnqueueParams{Args: noop{due.UnixMicro()}, EnqueueOptions: jobq.EnqueueOptions{RunAt: due}}
	}
	_, err := client.EnqueueMany(ctx, jobs)
	return err
}
