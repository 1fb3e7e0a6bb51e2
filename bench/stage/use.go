package stage

import (
	"context"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/measure"
)

// Use is how large a database's tables and indexes are, and how many dead rows they hold, over time.
type Use struct {
	every      time.Duration
	next       time.Time
	Dead, Disk measure.Series // rows, and MB
}

// Named is a figure with its name.
type Named struct {
	Name  string
	Value float64
}

// NewUse looks at most so often.
func NewUse(every time.Duration) *Use {
	return &Use{every: every, Dead: measure.Series{Every: every}, Disk: measure.Series{Every: every}}
}

// Read looks when the time has come.
func (u *Use) Read(ctx context.Context, d *Database) error {
	if time.Now().Before(u.next) {
		return nil
	}
	u.next = time.Now().Add(u.every)
	return u.Now(ctx, d)
}

// Now looks in any case. Dead rows are those that the server's statistics know, which are seconds old.
func (u *Use) Now(ctx context.Context, d *Database) error {
	var dead, bytes int64
	err := d.Pool.QueryRow(ctx, `select coalesce(sum(s.n_dead_tup), 0)::bigint, coalesce(sum(pg_total_relation_size(s.relid)), 0)::bigint
		from pg_stat_user_tables s`).Scan(&dead, &bytes)
	u.Dead.Values = append(u.Dead.Values, float64(dead))
	u.Disk.Values = append(u.Disk.Values, float64(bytes)/1e6)
	return err
}

// Figures are the columns of a table, once something was read: the disk that each job has cost contains its history, where one is kept.
func (u *Use) Figures(ran int64) []Named {
	first, last := u.Disk.Values[0], u.Disk.Values[len(u.Disk.Values)-1]
	return []Named{
		{"MB on disk, first", first},
		{"MB on disk, last", last},
		{"B on disk a job", (last - first) * 1e6 / float64(max(ran, 1))},
		{"dead rows, most", slices.Max(u.Dead.Values)},
		{"dead rows, last", u.Dead.Values[len(u.Dead.Values)-1]},
	}
}
