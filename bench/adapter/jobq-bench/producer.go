package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// retryEvery is how long the producer waits after an error: a server that restarts is away for seconds.
	retryEvery = 100 * time.Millisecond
	// fullPause is how long it waits when enough jobs wait.
	fullPause = 5 * time.Millisecond
)

// producer adds jobs as the harness asks for them.
type producer struct {
	settings
	queue  *queue
	meter  *meter
	target atomic.Int64 // jobs a second that were wanted last; 0 while a depth is wanted
}

// run adds jobs until the context ends.
func (p *producer) run(ctx context.Context, tokens io.Reader) error {
	switch {
	case p.mode == depthTarget:
		p.keepDepth(ctx)
	case p.pacing == byHarness:
		p.target.Store(int64(p.rate))
		p.obey(ctx, tokens)
	default:
		p.keepRate(ctx)
	}
	return nil
}

// add adds jobs, in as many calls as the largest batch asks for. What fails is tried again, so that the load stays what was
// offered; the jobs of a call whose answer was lost are then there twice.
func (p *producer) add(ctx context.Context, count int) {
	for count > 0 && ctx.Err() == nil {
		batch := min(count, p.batchMax)
		if err := p.queue.add(ctx, batch); err != nil {
			if ctx.Err() == nil {
				log.Printf("add jobs: %v", err)
			}
			_ = pause(ctx, retryEvery) // the loop looks whether the context has ended
			continue
		}
		p.meter.enqueued.Add(int64(batch))
		count -= batch
	}
}

// keepDepth keeps a number of jobs waiting.
func (p *producer) keepDepth(ctx context.Context) {
	for ctx.Err() == nil {
		if missing := int64(p.depth) - p.meter.waiting(); missing > 0 {
			p.add(ctx, int(min(missing, int64(p.batchMax))))
			continue
		}
		_ = pause(ctx, fullPause) // the loop looks whether the context has ended
	}
}

// keepRate adds jobs by the clock: what a slow call or a late timer leaves out is added with the next batch.
func (p *producer) keepRate(ctx context.Context) {
	last, credit := time.Now(), 0.0
	for pause(ctx, p.batchEvery) == nil {
		rate := p.rateNow()
		p.target.Store(int64(rate))
		now := time.Now()
		credit += rate * now.Sub(last).Seconds()
		last = now
		whole := int(credit)
		credit -= float64(whole)
		p.add(ctx, whole)
	}
}

// rateNow is what the harness wants now.
func (p *producer) rateNow() float64 {
	if p.rateFile != "" {
		if content, err := os.ReadFile(p.rateFile); err == nil {
			if rate, err := strconv.ParseFloat(strings.TrimSpace(string(content)), 64); err == nil && rate >= 0 {
				return rate
			}
		}
	}
	return float64(p.rate)
}

// obey adds as many jobs as each line of the harness says: "ENQUEUE 20". Other lines are reported and ignored.
func (p *producer) obey(ctx context.Context, tokens io.Reader) {
	counts := make(chan int)
	go func() { // ends with the harness, or with this process
		defer close(counts)
		lines := bufio.NewScanner(tokens)
		for lines.Scan() {
			var count int
			if _, err := fmt.Sscanf(lines.Text(), "ENQUEUE %d", &count); err != nil || count < 0 {
				log.Printf("no such order: %q", lines.Text())
				continue
			}
			select {
			case counts <- count:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case count, more := <-counts:
			if !more {
				<-ctx.Done() // no more jobs are wanted, and those that wait are run
				return
			}
			p.add(ctx, count)
		case <-ctx.Done():
			return
		}
	}
}
