package tests

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/sql/migrations"
)

// Every worker reads the same settings with its heartbeat: those of the
// queue's row, else the defaults; and no heartbeat is ever due later than half
// of the lease.
func TestQueueSettings(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("insert into jobq.queue (name, lease, extend_every) values ('mail', '40 s', '20 s')")
	settings := func(names ...string) []db.WorkerBeatRow {
		rows, err := q.queries.WorkerBeat(ctx, db.WorkerBeatParams{ID: "w", Queues: []byte("{}"), Kinds: []string{}, Programs: []byte("{}"), QueueNames: names, Silence: db.Interval(time.Minute)})
		require.NoError(t, err)
		return rows
	}
	latest := int32(migrations.Latest()) // #nosec G115 -- small
	minute := db.WorkerBeatRow{Queue: "unknown", LeaseMs: 60_000, ExtendEveryMs: 20_000, Heartbeat: "ticker", CompatibleFrom: latest, SuspectMs: -1}
	mail := db.WorkerBeatRow{Queue: "mail", LeaseMs: 40_000, ExtendEveryMs: 20_000, Heartbeat: "ticker", CompatibleFrom: latest, SuspectMs: -1}
	require.ElementsMatch(t, []db.WorkerBeatRow{minute, mail}, settings("mail", "unknown"))

	_, err := q.queries.QueueSet(ctx, "me", "mail", []byte(`{"lease": "50 s"}`))
	require.NoError(t, err)
	mail.LeaseMs = 50_000
	require.Equal(t, mail, settings("mail")[0], "a heartbeat that still fits is kept")
	_, err = q.queries.QueueSet(ctx, "me", "mail", []byte(`{"lease": "6 s"}`))
	require.NoError(t, err)
	require.Equal(t, db.WorkerBeatRow{Queue: "mail", LeaseMs: 6000, ExtendEveryMs: 2000, Heartbeat: "ticker", CompatibleFrom: latest, SuspectMs: -1}, settings("mail")[0])

	for sql, want := range map[string]string{
		"update jobq.queue set extend_every = lease / 2 + interval '1 ms'":    "extend_every must be positive and at most half of lease",
		"update jobq.queue set lease = '31 days'":                             "lease must be 1 second to 30 days",
		"update jobq.queue set lease = '999 ms', extend_every = null":         "lease must be 1 second to 30 days",
		"update jobq.queue set heartbeat = 'always'":                          "heartbeat must be ticker, progress, both or off",
		"update jobq.queue set redelivery = 'middle'":                         "redelivery must be head or tail",
		"update jobq.queue set stale_grace = '-1 s'":                          "stale_grace must be 0 to 30 days",
		"update jobq.queue set redelivery_delay = '31 days'":                  "redelivery_delay must be 0 to 30 days",
		"update jobq.queue set redelivery = 'head', redelivery_delay = '1 s'": "redelivery_delay needs redelivery tail",
		"update jobq.queue set pause_reason = repeat('x', 1025)":              "pause_reason must be at most 1024 characters",
	} {
		_, err := q.pool.Exec(ctx, sql)
		require.ErrorContains(t, err, want)
	}
}

// A worker makes room for those who had room for the same jobs lately, and for
// nobody else.
func TestIdleWorkers(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	worker := func(id, queues, kinds string, draining, room bool, silent time.Duration) {
		q.exec(`insert into jobq.worker (id, pid, present, draining, has_room, hostname, version, queues, kinds, heartbeat_at)
			values ($1, 1, true, $2, $3, 'h', 'v', $4, $5, now() - $6::interval)`, id, draining, room, queues, kinds, silent)
	}
	worker("same", `{"a": 1, "b": 1}`, "{k,l}", false, true, 0)
	worker("other queue", `{"b": 1}`, "{k}", false, true, 0)
	worker("other kinds", `{"a": 1}`, "{l}", false, true, 0)
	worker("draining", `{"a": 1}`, "{k}", true, true, 0)
	worker("full", `{"a": 1}`, "{k}", false, false, 0)
	worker("silent", `{"a": 1}`, "{k}", false, true, time.Minute)
	rows, err := q.queries.WorkerBeat(context.Background(), db.WorkerBeatParams{
		ID: "w", Queues: []byte(`{"a": 1}`), Kinds: []string{"k"}, Programs: []byte("{}"), QueueNames: []string{"a"}, Silence: db.Interval(30 * time.Second),
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, rows[0].IdleWorkers)
}

// With many queues, the available jobs of each are counted up to a share of what
// may be counted in all, and each queue says up to how many.
func TestQueueListSharesItsCount(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	list := func(countMax int64) map[string]db.QueueListRow {
		rows, err := q.queries.QueueList(ctx, countMax)
		require.NoError(t, err)
		byName := make(map[string]db.QueueListRow, len(rows))
		for _, row := range rows {
			byName[row.Name] = row
		}
		return byName
	}
	q.exec("insert into jobq.pending (kind, queue) select 'k', 'few' from generate_series(1, 150)")
	q.exec("insert into jobq.pending (kind, queue) select 'k', 'q1' from generate_series(1, 300)")
	queues := list(1000)
	require.EqualValues(t, 300, queues["q1"].Available)
	require.EqualValues(t, 1000, queues["q1"].AvailableMax)
	require.EqualValues(t, 100, list(100)["q1"].Available)

	q.exec("insert into jobq.pending (kind, queue) select 'k', 'q' || i from generate_series(2, 49) i")
	queues = list(1000)
	require.Len(t, queues, 50)
	require.EqualValues(t, 200, queues["q1"].Available, "10,000 for 50 queues")
	require.EqualValues(t, 200, queues["q1"].AvailableMax)
	require.EqualValues(t, 150, queues["few"].Available)
	require.EqualValues(t, 1, queues["q49"].Available)
}
