package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// moveHistory moves the rows of all partitions of a table, the latest days first,
// in steps of so many blocks. Nobody else writes them since the switch, and new
// rows come to the other layout: so each block is looked at once, and no step
// walks through what the ones before have deleted.
//
// After each step it rests for as long as the step took, so that it has half of a
// connection's time at most.
func (m migration) moveHistory(ctx context.Context, table, statement string, took *timing) error {
	partitions, err := partitionsOf(ctx, m.conn, table)
	if err != nil {
		return err
	}
	for _, partition := range partitions {
		var blocks int
		if err := m.conn.QueryRow(ctx, "select pg_relation_size($1::regclass) / 8192", "jobq."+partition).Scan(&blocks); err != nil {
			return err
		}
		for from := 0; from < blocks; from += stepBlocks {
			began := time.Now()
			step := strings.NewReplacer("$partition", partition, "$from", strconv.Itoa(from), "$to", strconv.Itoa(from+stepBlocks))
			if _, err := m.conn.Exec(ctx, planByIndex+step.Replace(statement)); err != nil {
				return fmt.Errorf("%s from block %d: %w", partition, from, err)
			}
			took.steps++
			if err := pause(ctx, time.Since(began)); err != nil {
				return err
			}
		}
		fmt.Fprintf(m.log, "%s has moved, %d blocks\n", partition, blocks)
	}
	return nil
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// partitionsOf are the partitions of a table, the latest day first after the default one.
func partitionsOf(ctx context.Context, conn querier, table string) ([]string, error) {
	rows, err := conn.Query(ctx, `
		select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
		where i.inhparent = to_regclass(format('jobq.%I', $1::text)) order by 1 desc`, table)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func today() time.Time { return time.Now().UTC().Truncate(24 * time.Hour) }

// earliestDay is the first day of which a table has a partition; today without any.
func earliestDay(ctx context.Context, tx pgx.Tx, table string) (time.Time, error) {
	partitions, err := partitionsOf(ctx, tx, table)
	if err != nil {
		return time.Time{}, err
	}
	earliest := today()
	for _, partition := range partitions {
		day, err := time.Parse("20060102", strings.TrimPrefix(partition, table+"_"))
		if err == nil && day.Before(earliest) { // the default partition is of no day
			earliest = day
		}
	}
	return earliest, nil
}

// addDay makes the partition of a day, if it is not there.
func addDay(ctx context.Context, tx pgx.Tx, parent string, day time.Time, bounds string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("create table if not exists jobq.%s_%s partition of jobq.%s for values from (%s)",
		parent, day.Format("20060102"), parent, bounds))
	return err
}

// finishedBounds are those of a partition of finished.
func finishedBounds(day time.Time) string {
	return fmt.Sprintf("'%s+00') to ('%s+00'", day.Format(time.DateTime), day.AddDate(0, 0, 1).Format(time.DateTime))
}

// pause waits, unless the context ends.
func pause(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
