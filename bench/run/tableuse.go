package main

import (
	"context"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/measure"
)

// tableUse is how large a database's tables and indexes are, and how many dead rows they hold, over time.
type tableUse struct {
	every      time.Duration
	next       time.Time
	dead, disk measure.Series // rows, and MB
}

// named is a figure with its name.
type named struct {
	name  string
	value float64
}

func newTableUse(every time.Duration) *tableUse {
	return &tableUse{every: every, dead: measure.Series{Every: every}, disk: measure.Series{Every: every}}
}

// read looks when the time has come.
func (u *tableUse) read(ctx context.Context, b *bed) error {
	if time.Now().Before(u.next) {
		return nil
	}
	u.next = time.Now().Add(u.every)
	return u.now(ctx, b)
}

// now looks in any case. Dead rows are those that the server's statistics know, which are seconds old.
func (u *tableUse) now(ctx context.Context, b *bed) error {
	var dead, bytes int64
	err := b.pool.QueryRow(ctx, `select coalesce(sum(s.n_dead_tup), 0)::bigint, coalesce(sum(pg_total_relation_size(s.relid)), 0)::bigint
		from pg_stat_user_tables s`).Scan(&dead, &bytes)
	u.dead.Values = append(u.dead.Values, float64(dead))
	u.disk.Values = append(u.disk.Values, float64(bytes)/1e6)
	return err
}

// figures are the columns of a table, once something was read: the disk that each job has cost contains its history, where one is kept.
func (u *tableUse) figures(ran int64) []named {
	first, last := u.disk.Values[0], u.disk.Values[len(u.disk.Values)-1]
	return []named{
		{"MB on disk, first", first},
		{"MB on disk, last", last},
		{"B on disk a job", (last - first) * 1e6 / float64(max(ran, 1))},
		{"dead rows, most", slices.Max(u.dead.Values)},
		{"dead rows, last", u.dead.Values[len(u.dead.Values)-1]},
	}
}
