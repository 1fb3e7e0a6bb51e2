package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Setting is a setting of the server.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Settings are the server's version and those settings that decide how fast a
// queue is.
func Settings(ctx context.Context, db querier) ([]Setting, error) {
	rows, err := db.Query(ctx, `
		select s.name, current_setting(s.name) from pg_settings s
		where s.name in ('server_version', 'shared_buffers', 'synchronous_commit', 'fsync', 'full_page_writes', 'wal_level',
		    'max_wal_size', 'checkpoint_timeout', 'wal_sync_method', 'autovacuum', 'autovacuum_naptime', 'jit')
		order by s.name <> 'server_version', s.name`)
	if err != nil {
		return nil, fmt.Errorf("settings of the server: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Setting])
}

// Latencies is what a round trip costs that does nothing, and one that
// commits a row: what no queue can be faster than, job by job.
type Latencies struct {
	RoundTrip Summary
	Commit    Summary
}

// MeasureLatencies asks nothing a number of times, and then writes as often,
// by the statement given, which should insert one row.
func MeasureLatencies(ctx context.Context, conn *pgx.Conn, samples int, insert string) (Latencies, error) {
	measure := func(sql string) (Summary, error) {
		times := make([]time.Duration, samples)
		for i := range times {
			started := time.Now()
			if _, err := conn.Exec(ctx, sql); err != nil {
				return Summary{}, err
			}
			times[i] = time.Since(started)
		}
		return Summarize(times), nil
	}
	var l Latencies
	var err error
	if l.RoundTrip, err = measure("select 1"); err != nil {
		return l, err
	}
	l.Commit, err = measure(insert)
	return l, err
}
