package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/measure"
)

func (b *bench) firstFrame(ctx context.Context) error {
	for screen, want := range map[string]string{"overview": "Queues ", "jobs": "newest first"} {
		var times []time.Duration
		for range 7 {
			began, err := b.open(ctx, lines, "--open", screen)
			if err != nil {
				return err
			}
			at, err := b.await(ctx, func(s string) bool {
				return strings.Contains(s, want) && !strings.Contains(s, "asking the database")
			})
			if err != nil {
				return err
			}
			times = append(times, at.Sub(began))
			b.close()
		}
		s := measure.Summarize(times)
		fmt.Printf("first frame        %-9s median %s, slowest %s of %d, from the command to all panels\n", screen, round(s.P50), round(s.Max), s.Count)
		b.bars.atMost("first frame, median", s.P50, firstFrameMax)
	}
	return nil
}

// noMatch filters by a kind that no job has.
func (b *bench) noMatch(ctx context.Context) error {
	if _, err := b.open(ctx, tall, "--open", "jobs"); err != nil {
		return err
	}
	defer b.close()
	if _, err := b.await(ctx, func(s string) bool { return strings.Contains(s, "newest first") && !strings.Contains(s, "asking") }); err != nil {
		return err
	}
	if err := b.filter(ctx, "kind:nosuch"); err != nil {
		return err
	}
	began := time.Now()
	deeper := "only the newest"
	at, err := b.await(ctx, func(s string) bool { return strings.Contains(s, "no job matches") })
	if err != nil {
		return err
	}
	if !strings.Contains(b.screen(), deeper) {
		deeper = "all of them were searched"
	}
	fmt.Printf("no match           after %s: %s\n", round(at.Sub(began)), deeper)
	b.bars.atMost("a filter without a match", at.Sub(began), noMatchMax)
	return nil
}

func (b *bench) rest(ctx context.Context, span time.Duration) error {
	for _, screen := range []string{"overview", "jobs"} {
		if _, err := b.open(ctx, tall, "--open", screen); err != nil {
			return err
		}
		if _, err := b.await(ctx, func(s string) bool { return strings.Contains(s, "live") }); err != nil {
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		if err := b.measure(ctx, "at rest, "+screen, span, false); err != nil {
			return err
		}
		b.close()
	}
	return nil
}

// filter types a filter.
func (b *bench) filter(ctx context.Context, text string) error {
	b.tmux("send-keys", "-t", session, "/")
	if err := pause(ctx, 300*time.Millisecond); err != nil {
		return err
	}
	b.tmux("send-keys", "-t", session, "-l", text)
	b.tmux("send-keys", "-t", session, "Enter")
	return nil
}

func round(span time.Duration) time.Duration { return span.Round(time.Millisecond) }
