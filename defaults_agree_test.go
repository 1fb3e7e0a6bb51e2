package jobq_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// The defaults that Go names are those that the database has, whichever way a job or a
// queue comes to be, and those that the documentation names.
func TestDefaultsAgree(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	type defaults struct {
		queue       string
		maxAttempts int
	}
	want := defaults{jobq.DefaultQueue, jobq.DefaultMaxAttempts}

	one, err := client.Enqueue(ctx, jobq.RawArgs{Name: "k"}, nil)
	require.NoError(t, err)
	keyed, err := client.Enqueue(ctx, jobq.RawArgs{Name: "k"}, &jobq.EnqueueOptions{UniqueKey: "u"}) // another statement
	require.NoError(t, err)
	many, err := client.EnqueueMany(ctx, []jobq.EnqueueParams{{Args: jobq.RawArgs{Name: "k"}}})
	require.NoError(t, err)
	ids := map[string]int64{"Enqueue": one.ID, "Enqueue with a key": keyed.ID, "EnqueueMany": many[0].ID}
	for way, sql := range map[string]string{
		"insert":       "insert into jobq.pending (kind) values ('k') returning id",
		"enqueue":      "select jobq.enqueue('k', '{}'::jsonb)",
		"enqueue_many": "select id from jobq.enqueue_many('[{\"kind\": \"k\"}]'::jsonb)",
	} {
		var id int64
		require.NoError(t, client.Pool().QueryRow(ctx, sql).Scan(&id), way)
		ids[way] = id
	}
	act := operator.New(client, "test")
	_, err = act.SetSchedule(ctx, jobq.Schedule{Name: "s", Every: time.Hour, Kind: "k"})
	require.NoError(t, err)
	ids["schedule"], err = act.RunSchedule(ctx, "s")
	require.NoError(t, err)
	for way, id := range ids {
		var got defaults
		require.NoError(t, client.Pool().QueryRow(ctx, "select queue, max_attempts from jobq.pending where id = $1", id).
			Scan(&got.queue, &got.maxAttempts), way)
		require.Equal(t, want, got, way)
	}

	// The wait is a random part of the backoff: of a thousand, the longest is close to it.
	for attempts, want := range map[int]time.Duration{1: jobq.DefaultBackoffBase, 1000: jobq.DefaultBackoffMax} {
		var longest time.Duration
		require.NoError(t, client.Pool().QueryRow(ctx, `select max(jobq.backoff_delay($1::integer, p.backoff_base, p.backoff_max))
			from jobq.pending p, generate_series(1, 1000) where p.id = $2`, attempts, one.ID).Scan(&longest))
		require.LessOrEqual(t, longest, want)
		require.Greater(t, longest, want*9/10)
	}

	// A queue without settings has the default lease, and so has one of which another
	// setting was given.
	grace := time.Second
	_, err = act.SetQueue(ctx, "set", operator.QueueChange{StaleGrace: &grace})
	require.NoError(t, err)
	queues, err := monitor.New(client).Queues(ctx)
	require.NoError(t, err)
	seen := 0
	for _, queue := range queues {
		require.Equal(t, []time.Duration{jobq.DefaultLease, jobq.DefaultExtendEvery, jobq.DefaultAgeAfter},
			[]time.Duration{queue.Lease, queue.ExtendEvery, queue.AgeAfter}, queue.Name)
		seen++
	}
	require.Equal(t, 2, seen)
	w := jobtest.NewWorker(t)
	rows, err := w.Queries.WorkerBeat(ctx, db.WorkerBeatParams{
		ID: "w", Queues: []byte(`{"plain": 1}`), Kinds: []string{"k"}, Programs: []byte("{}"), QueueNames: []string{"plain"}, Silence: db.Interval(time.Minute),
	})
	require.NoError(t, err)
	require.Equal(t, []int64{jobq.DefaultLease.Milliseconds(), jobq.DefaultExtendEvery.Milliseconds()}, []int64{rows[0].LeaseMs, rows[0].ExtendEveryMs})
	row, err := w.Queries.JanitorLockTx(ctx, 1, 1)
	require.NoError(t, err)
	require.Equal(t, jobq.DefaultLease.Milliseconds(), row.ShortestLeaseMs)

	for name, text := range map[string]string{
		"docs/sql.md":                  fmt.Sprintf(`\| `+"`max_attempts bigint`"+` \| %d \|`, jobq.DefaultMaxAttempts),
		"docs/cli.md":                  fmt.Sprintf(`fails for good\s+\(default\s+%d\)`, jobq.DefaultMaxAttempts),
		"docs/internals/guarantees.md": fmt.Sprintf(`lease %.0f s, extended every %.0f s`, jobq.DefaultLease.Seconds(), jobq.DefaultExtendEvery.Seconds()),
		"docs/configuration.md":        fmt.Sprintf(`lease: %.0fs `, jobq.DefaultLease.Seconds()),
		"README.md":                    fmt.Sprintf(`its lease: %.0f s by default`, jobq.DefaultLease.Seconds()),
		"enqueue.go":                   fmt.Sprintf(`Default %d \(DefaultMaxAttempts\)`, jobq.DefaultMaxAttempts),
		"monitor/queues.go":            fmt.Sprintf(`%.0f seconds by default`, jobq.DefaultLease.Seconds()),
		"worker/config.go":             fmt.Sprintf(`%.0f\s+// seconds \(jobq.DefaultLease\)`, jobq.DefaultLease.Seconds()),
	} {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Regexp(t, text, string(content), name)
	}
}

// The SQL has each of the defaults in one place: the function that is named for it.
func TestDefaultsStandOnce(t *testing.T) {
	t.Parallel()
	literal := regexp.MustCompile(`(?i)(attempts[^\n]{0,40}[ (,]25\b)|'60 ?s(econds)?'|'1 minute'::interval|\b60000\b`)
	require.Regexp(t, literal, "coalesce(enqueue.max_attempts, 25)")
	require.Regexp(t, literal, "coalesce(q.lease, interval '60 s')")
	for _, pattern := range []string{"sql/schema/*.sql", "sql/queries/*.sql"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, name := range files {
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			want := 0
			if filepath.Base(name) == "types.sql" {
				want = 1 // lease_default
			}
			require.Len(t, literal.FindAllString(string(content), -1), want, name)
		}
	}
}
