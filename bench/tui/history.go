package main

import (
	"context"
	"fmt"

	"github.com/jobq-dev/jobq/bench/stage"
)

// fill makes a history, unless a run before has left one that is large enough.
func (b *bench) fill(ctx context.Context, history int) error {
	var have int
	if err := b.pool.QueryRow(ctx, "select coalesce(sum(reltuples), 0)::bigint from pg_class where relname like 'run\\_%' and relkind = 'r'").Scan(&have); err != nil {
		return err
	}
	if have < history*9/10 {
		if err := stage.FillHistory(ctx, b.pool, history); err != nil {
			return err
		}
	}
	fmt.Printf("history            %d finished jobs\n", max(have, history))
	return nil
}
