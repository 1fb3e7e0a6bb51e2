package tests

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// beat is a heartbeat of a worker w of the queue default.
func beat(looked, announced []string) db.WorkerBeatParams {
	return db.WorkerBeatParams{
		ID: "w", Queues: []byte("{}"), Kinds: []string{}, Programs: []byte("{}"), QueueNames: []string{"default"},
		Silence: db.Interval(time.Minute), Looked: looked, Announced: announced, AnnouncedSeconds: 30,
	}
}

// A heartbeat says that a queue is empty only of a queue at which it was to look, and in which no job waits.
func TestHeartbeatLooksWhereItIsAsked(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	isEmpty := func(looked []string) bool {
		rows, err := q.queries.WorkerBeat(context.Background(), beat(looked, nil))
		require.NoError(t, err)
		require.Len(t, rows, 1)
		return rows[0].IsEmpty
	}
	require.True(t, isEmpty([]string{"default"}))
	require.False(t, isEmpty(nil))
	require.False(t, isEmpty([]string{"other"}))
	q.exec("insert into jobq.pending (kind) values ('of nobody here')")
	require.False(t, isEmpty([]string{"default"}))
}

// While somebody keeps the worker's row, its heartbeat waits for that and has not taken the turn of announcements: other workers
// announce meanwhile.
func TestHeartbeatThatWaitsKeepsNoTurn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	_, err := q.queries.WorkerBeat(ctx, beat(nil, nil))
	require.NoError(t, err)
	q.exec("select jobq.wait_announce('other', 1)") // adds the row of the turn
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "select from jobq.worker where id = 'w' for update")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := q.queries.WorkerBeat(ctx, beat(nil, []string{"default"}))
		ended <- err
	}()
	require.Eventually(t, func() bool {
		return q.number("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == 1
	}, patience, 5*time.Millisecond)
	free := q.number("select count(*) from (select from jobq.turn t where t.name = 'announce' and t.part = 0 for update skip locked) x")
	require.NoError(t, tx.Rollback(ctx))
	require.NoError(t, <-ended)
	require.Equal(t, 1, free)
	require.Equal(t, 1, q.number("select jobq.worker_is_waiting('default')::integer"))
}

// ChoresFind finds the chore "shorten leases" by the condition by which LeaseShorten finds leases.
func TestLeasesToShortenAreFoundAsTheyAreShortened(t *testing.T) {
	t.Parallel()
	condition := func(file, query string) string {
		content, err := os.ReadFile("../queries/" + file) // #nosec G304 -- our own
		require.NoError(t, err)
		_, text, found := strings.Cut(strings.Join(strings.Fields(string(content)), " "), "-- name: "+query)
		require.True(t, found)
		return regexp.MustCompile(`from jobq\.lease x .*? interval '31 days'\)`).FindString(text)
	}
	require.NotEmpty(t, condition("reap.sql", "LeaseShorten"))
	require.Equal(t, condition("reap.sql", "LeaseShorten"), condition("janitor.sql", "ChoresFind"))
}
