package bench

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/worker"
)

var idleScenario = Scenario{
	Name:  "idle",
	Short: "Watch workers that have nothing to do",
	Long: `Start workers on empty queues and count what they send to the server, and what that costs
on both sides. One janitor runs beside them: its statements are counted apart, its CPU
time is not.`,
	Flags:   []string{"duration", "workers", "slots"},
	Default: Config{Duration: 30 * time.Second, Workers: 1},
	run: func(ctx context.Context, b *bench) ([]Case, error) {
		c, err := b.idle(ctx)
		return []Case{c}, err
	},
}

func (b *bench) idle(ctx context.Context) (Case, error) {
	c := Case{Name: "idle"}
	ran := make(chan struct{}, 1)
	crew, err := b.startCrew(ctx, func(context.Context, *worker.Job[task]) error {
		ran <- struct{}{}
		return nil
	})
	if err != nil {
		return c, err
	}
	// One job, so that the workers have begun and found nothing more.
	err = b.awaitReady(crew.ctx)
	if err == nil {
		_, err = b.client.Enqueue(crew.ctx, task{}, nil)
	}
	if err != nil {
		return c, crew.failed(err)
	}
	crew.await(ran)
	b.say("watching %d idle workers for %s", b.Workers, b.Duration)
	before, err := b.meter.Read(ctx)
	if err != nil {
		return c, crew.failed(err)
	}
	calls, caretakerCalls := b.tracer.read(), b.caretakerTracer.read()
	timer := time.NewTimer(b.Duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-crew.ctx.Done():
	}
	sent, caretakerSent := b.tracer.read().since(calls), b.caretakerTracer.read().since(caretakerCalls)
	after, err := b.meter.Read(ctx)
	if stopErr := crew.stop(); err == nil {
		err = stopErr
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return c, err
	}
	usage := b.meter.Since(before, after)
	each := usage.Elapsed.Seconds() * float64(b.Workers)
	c.add("statements", "/s each", float64(sent.statements)/each)
	c.add("round trips", "/s each", float64(sent.roundTrips)/each)
	c.add("janitor statements", "/s", float64(caretakerSent.statements)/usage.Elapsed.Seconds())
	c.add("client cpu", "% of a core each", 100*usage.ClientCPU.Seconds()/each)
	if usage.ServerKnown {
		c.add("server cpu", "% of a core each", 100*usage.ServerCPU.Seconds()/each)
	}
	return c, nil
}
