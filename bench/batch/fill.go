package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq/bench/layouts"
)

// empty takes away what an earlier round has left.
const empty = `do $$ declare tables text; begin
  select string_agg(c.oid::regclass::text, ', ') into tables from pg_class c
    where c.relnamespace = left('jobq.', -1)::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
      and c.relname = any('{pending,running,finished,attempt,payload,unique_key,stat_delta,batch,batch_done,run,lease,past_lease,result,progress}');
  execute 'truncate ' || tables;
  perform setval('jobq.job_id_seq', 1, false), setval('jobq.position_seq', 1, false);
  if to_regclass('jobq.line') is not null then
    update jobq.line set position = 0;
  end if;
end $$`

// clear begins a round.
func (b *bed) clear(ctx context.Context) error {
	if _, err := b.conns[0].Exec(ctx, b.schema.SQL(empty)); err != nil {
		return fmt.Errorf("empty: %w", err)
	}
	b.added = 0
	return nil
}

// add makes all the jobs that wait.
func (b *bed) add(ctx context.Context) error {
	for range b.chunks() {
		if err := b.addChunk(ctx); err != nil {
			return err
		}
	}
	return b.filled()
}

// filled is an error unless those jobs are there that the figures are divided by.
func (b *bed) filled() error {
	if b.added != b.jobs || b.added == 0 {
		return fmt.Errorf("inserted %d jobs of %d", b.added, b.jobs)
	}
	return nil
}

// chunk is how many jobs one statement adds, except the last.
const chunk = 1000

// chunks is how many statements add all jobs.
func (b *bed) chunks() int { return (b.jobs + chunk - 1) / chunk }

// addChunk makes some jobs, as long as there are not all. No two have the same
// args, which would compress too well.
func (b *bed) addChunk(ctx context.Context) error {
	args := make([]string, min(chunk, b.jobs-b.added))
	for i := range args {
		if b.compressible {
			args[i] = `{"d": "` + strings.Repeat("jobq ", b.argBytes/5) + `"}`
			continue
		}
		random, err := layouts.RandomArgs(b.argBytes)
		if err != nil {
			return err
		}
		args[i] = random
	}
	tag, err := b.conns[0].Exec(ctx, b.schema.SQL(b.fill), args)
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	b.added += int(tag.RowsAffected())
	return nil
}
