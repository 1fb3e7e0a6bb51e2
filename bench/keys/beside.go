package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// beside measures claims of 20 jobs of 20 awake keys beside keys that are asleep, each with two jobs in the line: the median of 40, rolled back.
func (b *bed) beside(ctx context.Context) error {
	fmt.Println("| 20 jobs of 20 keys, beside | 10 | 1,000 | 100,000 |\n|---|---:|---:|---:|")
	for _, reason := range []string{"f full", "r throttled", "p paused", "h held"} {
		line := "| " + reason[2:]
		for _, count := range []int{10, 1_000, 100_000} {
			took, err := b.besideSome(ctx, reason[:1], count)
			if err != nil {
				return fmt.Errorf("%s %d: %w", reason, count, err)
			}
			line += fmt.Sprintf(" | %.2f", took.Seconds()*1000)
		}
		fmt.Println(line + " |")
	}
	return nil
}

// besideSome has so many keys asleep for a reason, as claims would have left them.
func (b *bed) besideSome(ctx context.Context, reason string, count int) (time.Duration, error) {
	settings := map[string]string{"f": "1, null, null, null, null", "r": "null, '1 hour', 1, null, null", "p": "null, null, null, null, null", "h": "1, null, null, 'hold', null"}[reason]
	if err := b.empty(ctx, keyCase{queue: settings}); err != nil {
		return 0, err
	}
	many := []string{
		"insert into proto.pending (kind, partition_key) select 'bench', 'asleep ' || i % {n} from generate_series(1, 2 * {n}) i",
		"insert into proto.lane (queue, key, rank, reason, asleep_until) select 'default', 'asleep ' || i, 0, '{r}', now() + interval '1 hour' from generate_series(0, {n} - 1) i",
	}
	switch reason {
	case "f":
		many = append(many, "insert into proto.lease (id, claimed_at, expires_at, owner, queue, key, job_ids) select i, now(), now() + interval '1 hour', 'o', 'default', 'asleep ' || i, array[i] from generate_series(0, {n} - 1) i")
	case "p":
		many = append(many, "insert into proto.paused_key select 'default', 'asleep ' || i from generate_series(0, {n} - 1) i")
	}
	for _, sql := range append(many, "truncate proto.lane_hint", "insert into proto.pending (kind, partition_key) select 'bench', 'awake ' || i from generate_series(1, 20) i",
		"insert into proto.pending (kind, partition_key) select 'bench', 'awake ' || i from generate_series(1, 20) i", "vacuum analyze proto.pending", "vacuum analyze proto.lane") {
		text := strings.NewReplacer("{n}", strconv.Itoa(count), "{r}", reason).Replace(sql)
		if _, err := b.pool.Exec(ctx, text); err != nil {
			return 0, fmt.Errorf("%s: %w", text, err)
		}
	}
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	var times []time.Duration
	for range 40 {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return 0, err
		}
		p := &proto{conn: tx, owner: "w", kinds: []string{"bench"}, lanes: 20}
		began := time.Now()
		claimed, _, err := p.exchange(ctx, nil, 20)
		if err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
		if err := tx.Rollback(ctx); err != nil {
			return 0, err
		}
		if len(perKey(claimed)) != 20 {
			return 0, fmt.Errorf("a claim took jobs of %d keys", len(perKey(claimed)))
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// inserts measures how many jobs a second are added in statements of 1,000 and of one, with keys and without.
func (b *bed) inserts(ctx context.Context, o options) error {
	fmt.Println("| inserts | side | server CPU, µs a job |\n|---|---|---:|")
	for _, each := range []int{1000, 1} {
		for _, c := range []struct{ name, key string }{{"without keys", "''"}, {"with 10,000 keys", "'key ' || i % 10000"}} {
			for _, schema := range []string{"jobq", "proto"} {
				if err := b.empty(ctx, keyCase{queue: "null, null, null, null, null"}); err != nil {
					return err
				}
				before, err := b.meter.Read(ctx)
				if err != nil {
					return err
				}
				jobs := min(o.jobs, 3000*each)
				for from := 0; from < jobs; from += each {
					sql := "insert into " + schema + ".pending (kind, partition_key) select 'bench', " + c.key + " from generate_series($1::integer, $2) i"
					if _, err := b.pool.Exec(ctx, sql, from+1, from+each); err != nil {
						return err
					}
				}
				after, err := b.meter.Read(ctx)
				if err != nil {
					return err
				}
				fmt.Printf("| %d at once, %s | %s | %.1f |\n", each, c.name, schema, float64(b.meter.Since(before, after).ServerCPU.Microseconds())/float64(jobs))
			}
		}
	}
	return nil
}
