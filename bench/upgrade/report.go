package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// report writes how long things took, and returns what has gone wrong.
func (t *trial) report(ctx context.Context) error {
	log, err := os.Open(t.log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // only read
	server, err := readServerLog(log)
	if err != nil {
		return err
	}
	all, err := readBegun(t.notes())
	if err != nil {
		return err
	}
	var calls []call
	for _, i := range t.inserters {
		calls = append(calls, i.answered()...)
	}
	t.table(calls, all, server)
	fmt.Printf("\n%d jobs, %d commands of the old program. The longest step of each statement, of those above %s:\n", len(calls), t.commands, ms(logged))
	for _, name := range slices.Sorted(maps.Keys(server.slow)) {
		if most := longest(server.slow[name], t.whole()); most > 0 {
			fmt.Printf("  %s: %s\n", name, ms(most))
		}
	}
	completed, err := t.completed(ctx)
	if err != nil {
		return err
	}
	faults := append(notOnce(calls, all, completed), server.errors...)
	for _, p := range t.crew {
		faults = append(faults, p.complaints()...)
	}
	if len(faults) > 0 {
		return errors.New("what has gone wrong:\n" + strings.Join(faults, "\n"))
	}
	fmt.Println("Each job ran exactly once, and no program or statement has failed.")
	return nil
}

// whole is the time from the first window to the last one.
func (t *trial) whole() span {
	return span{began: t.windows[0].began, ended: t.windows[len(t.windows)-1].ended}
}

// table writes a row for each window.
func (t *trial) table(calls []call, all []begun, server serverLog) {
	var inserted []span
	answered := map[int64]time.Time{}
	for _, c := range calls {
		inserted = append(inserted, c.span)
		answered[c.id] = c.span.ended
	}
	var waited []span
	for _, b := range all {
		if at, known := answered[b.id]; known && b.at.After(at) {
			waited = append(waited, span{at, b.at})
		}
	}
	fmt.Println("\n| | took | inserts | longest insert | longest claim | longest end | longest wait for the handler |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|")
	for _, w := range t.windows {
		count := 0
		for _, s := range inserted {
			if s.overlaps(w.span) {
				count++
			}
		}
		fmt.Printf("| %s | %.2f s | %d | %s | %s | %s | %s |\n", w.what, w.took().Seconds(), count, ms(longest(inserted, w.span)),
			atLeastLogged(longest(server.of(claims), w.span)), atLeastLogged(longest(server.of(ends), w.span)), ms(longest(waited, w.span)))
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond)) }

// atLeastLogged is ms of what the server logs when it takes long.
func atLeastLogged(d time.Duration) string {
	if d == 0 {
		return "under " + ms(logged)
	}
	return ms(d)
}

// completed are the jobs that jobq has stored as completed, each with the runs before the last one that it has counted: failures
// and crashes.
func (t *trial) completed(ctx context.Context) (map[int64]int, error) {
	rows, err := t.pool.Query(ctx, "select id, attempts + crashes from jobq.job where kind = $1 and state = 'completed'", kind)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	earlier := map[int64]int{}
	for rows.Next() {
		var id int64
		var count int
		if err := rows.Scan(&id, &count); err != nil {
			return nil, err
		}
		earlier[id] = count
	}
	return earlier, rows.Err()
}

// notOnce says which jobs did not run exactly once, or are not stored so.
func notOnce(calls []call, all []begun, completed map[int64]int) []string {
	var faults []string
	ran := map[int64]int{}
	for _, b := range all {
		if ran[b.id]++; b.attempt != 1 {
			faults = append(faults, fmt.Sprintf("job %d: attempt %d on %s", b.id, b.attempt, b.worker))
		}
	}
	for _, c := range calls {
		if ran[c.id] != 1 {
			faults = append(faults, fmt.Sprintf("job %d ran %d times", c.id, ran[c.id]))
		}
		if earlier, known := completed[c.id]; !known || earlier != 0 {
			faults = append(faults, fmt.Sprintf("job %d: completed: %t, runs before: %d", c.id, known, earlier))
		}
	}
	if len(completed) != len(calls) || len(ran) != len(calls) {
		faults = append(faults, fmt.Sprintf("%d jobs were added, %d ran, and %d have completed", len(calls), len(ran), len(completed)))
	}
	return faults
}
