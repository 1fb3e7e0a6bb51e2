package programs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// tick is the time between two looks at what a test waits for.
const tick = 5 * time.Millisecond

// newOwn returns a client on a database with a table for effects, and how its programs
// connect to it.
func newOwn(t *testing.T) (client *jobq.Client, url string) {
	t.Helper()
	url = pgtest.URL(t)
	client, err := jobq.NewClient(pgtest.Connect(t, url), nil)
	require.NoError(t, err)
	_, err = client.Pool().Exec(context.Background(), "create table public.effect (job bigint)")
	require.NoError(t, err)
	return client, url
}

// ownCommand is a script that ends its job itself. In it, sql runs what it reads with psql,
// where :id is the job and :'token' the run.
func ownCommand(url, script string) programs.Command {
	command := shellCommand(`sql() { psql "$DATABASE_URL" -qAtX -v ON_ERROR_STOP=1 -v id="$JOBQ_JOB_ID" -v token="$JOBQ_RUN_TOKEN"; }
` + script)
	command.Env, command.EndsItself = map[string]string{"DATABASE_URL": url}, true
	return command
}

func effects(t *testing.T, pool *pgxpool.Pool, job int64) (count int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), "select count(*) from public.effect where job = $1", job).Scan(&count))
	return count
}

// awaitFile waits until a program has made the file, and returns what it has written.
func awaitFile(t *testing.T, path string) string {
	t.Helper()
	var content []byte
	require.Eventually(t, func() (ok bool) {
		var err error
		content, err = os.ReadFile(path) // #nosec G304 -- the test's own
		return err == nil
	}, patience, tick, path)
	return string(content)
}

// What a program's own transaction has stored is how its job has ended, whatever it does
// then; and where that has stored nothing, nothing has succeeded. The effect is there if
// and only if the completion is.
func TestEndsItself(t *testing.T) {
	t.Parallel()
	const completes = `begin; insert into public.effect values (:id); select jobq.complete(:id, :'token', '{\"a\": 1}');`
	client, url := newOwn(t)
	told := make(chan worker.Failure, 100)
	w := newWorker(t, client, worker.Config{OnFailure: func(_ context.Context, failure worker.Failure) { told <- failure }})
	p := programs.New(w)
	tests := map[string]struct {
		script  string
		state   jobq.State
		outcome jobq.Outcome
		effects int
		err     string
	}{
		"completes":                 {`echo "` + completes + ` commit" | sql; echo then`, jobq.StateCompleted, jobq.OutcomeCompleted, 1, ""},
		"completes and fails":       {`echo "` + completes + ` commit" | sql; echo then; exit 1`, jobq.StateCompleted, jobq.OutcomeCompleted, 1, ""},
		"completes and is killed":   {`echo "` + completes + ` commit" | sql; echo then; kill -9 $$`, jobq.StateCompleted, jobq.OutcomeCompleted, 1, ""},
		"completes and reports":     {`echo "` + completes + ` commit" | sql; echo '{"checkpoint": 1}' >&3; echo then`, jobq.StateCompleted, jobq.OutcomeCompleted, 1, ""},
		"fails":                     {`echo "begin; insert into public.effect values (:id); select jobq.fail(:id, :'token', 'by itself', final => true); commit" | sql; echo then`, jobq.StateFailed, jobq.OutcomeFailed, 1, "by itself"},
		"snoozes":                   {`echo "select jobq.snooze(:id, :'token', '1 h')" | sql; echo then`, jobq.StateScheduled, jobq.OutcomeSnoozed, 0, ""},
		"says nothing":              {`echo then`, jobq.StateFailed, jobq.OutcomeFailed, 0, "no transaction of its own has ended the job"},
		"rolls back":                {`echo "` + completes + ` rollback" | sql; echo then`, jobq.StateFailed, jobq.OutcomeFailed, 0, "no transaction of its own has ended the job"},
		"rolls back and fails":      {`echo "` + completes + ` rollback" | sql; echo then; exit 3`, jobq.StateFailed, jobq.OutcomeFailed, 0, "exit code 3"},
		"is killed before a commit": {`echo then; { echo "` + completes + `"; echo "\\! kill -9 $$"; echo "\\! sleep 1000"; echo "commit;"; } | sql`, jobq.StateFailed, jobq.OutcomeFailed, 0, "SIGKILL"},
		"has a wrong token":         {`JOBQ_RUN_TOKEN=1.1.1; echo "` + completes + ` commit" | sql || { echo then; exit 1; }`, jobq.StateFailed, jobq.OutcomeFailed, 0, "token must be a run token"},
		"forges a token":            {`token=${JOBQ_RUN_TOKEN#*.}; JOBQ_RUN_TOKEN=$((${JOBQ_RUN_TOKEN%%.*} + 1)).$token; echo "` + completes + ` commit" | sql || { echo then; exit 1; }`, jobq.StateFailed, jobq.OutcomeFailed, 0, "was not made by a worker"},
		"snoozes by a message":      {`echo then; echo '{"snooze": "1h"}' >&3`, jobq.StateScheduled, jobq.OutcomeSnoozed, 0, ""},
		"snoozes by its exit code":  {`echo then; exit 75`, jobq.StateScheduled, jobq.OutcomeSnoozed, 0, ""},
	}
	ids := make(map[string]int64)
	for name, test := range tests {
		require.NoError(t, p.HandleCommand(name, ownCommand(url, test.script), nil))
		ids[name] = enqueueRaw(t, client, name, "{}", &jobq.EnqueueOptions{MaxAttempts: 1, UniqueKey: "u"})
	}
	w2 := run(t, w)
	for name, test := range tests {
		job := awaitState(t, client, ids[name], test.state)
		require.Equal(t, test.effects, effects(t, client.Pool(), job.ID), name)
		require.Contains(t, job.LastError, test.err, name)
		if test.state == jobq.StateCompleted {
			require.JSONEq(t, `{"a": 1}`, string(job.Result), name)
		}
		var kept []monitor.Attempt
		require.Eventually(t, func() bool { // the worker adds it when the program has ended
			kept = attempts(t, client, job.ID)
			return len(kept) == 1 && kept[0].Output != ""
		}, patience, tick, name)
		require.Equal(t, test.outcome, kept[0].Outcome, name)
		require.Contains(t, kept[0].Output, "then\n", name)
		require.NotNil(t, kept[0].Usage, name)
	}
	for range 7 { // OnFailure is told of a program's failure as of any other
		failure := receive(t, told, "a failure")
		test := tests[failure.Run.Kind()]
		require.Equal(t, jobq.OutcomeFailed, test.outcome, failure.Run.Kind())
		require.True(t, failure.Final)
		if want := test.err; want == "by itself" { // the text stays in the database
			require.ErrorContains(t, failure.Err, "has ended the run as failed")
		} else {
			require.ErrorContains(t, failure.Err, want)
		}
	}
	require.NoError(t, w2.drain())
	require.Empty(t, told)
	counts := w2.Counts()
	require.Zero(t, counts.Lost)
	require.EqualValues(t, 4, counts.Completed)
	require.EqualValues(t, 7, counts.Failed)
	require.EqualValues(t, 3, counts.Snoozed)
	var completed, failed, leases int
	require.NoError(t, client.Pool().QueryRow(context.Background(), "select sum(completed), sum(failed), (select count(*) from jobq.lease) from jobq.stats").Scan(&completed, &failed, &leases))
	require.Equal(t, []int{4, 7, 0}, []int{completed, failed, leases})
}

// A program that has not to end its jobs itself has no token.
func TestRunTokenIsForThoseWhoAsk(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{})
	p := programs.New(w)
	require.NoError(t, p.HandleCommand("k", shellCommand(`test -z "${JOBQ_RUN_TOKEN+set}"`), nil))
	require.NoError(t, p.HandleStream("s", programs.Stream{Command: shellCommand(`while read -r job; do case "$job" in *run_token*) exit 1;; esac; echo '{"id": 2, "done": true}'; done`)}, nil))
	run(t, w)
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	command, stream := enqueueRaw(t, client, "k", "{}", once), enqueueRaw(t, client, "s", "{}", once)
	require.EqualValues(t, 2, stream)
	awaitState(t, client, command, jobq.StateCompleted)
	awaitState(t, client, stream, jobq.StateCompleted)
}

// endsSent notes that a worker has asked for the end of a run.
type endsSent struct{ atomic.Bool }

func (*endsSent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*endsSent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *endsSent) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, query := range data.Batch.QueuedQueries {
		if strings.Contains(query.SQL, "-- name: RunEnd ") {
			s.Store(true)
		}
	}
	return ctx
}

func (*endsSent) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*endsSent) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A transaction that is still open when the program has ended decides, whenever it
// ends: the worker's own end waits for it. What the program has written is kept.
func TestEndsItselfLate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		call    string
		commits bool
		exit    int
		state   jobq.State
		outcome jobq.Outcome
	}{
		"complete":                     {"jobq.complete($1, $2)", true, 0, jobq.StateCompleted, jobq.OutcomeCompleted},
		"complete, then exit 1":        {"jobq.complete($1, $2)", true, 1, jobq.StateCompleted, jobq.OutcomeCompleted},
		"snooze":                       {"jobq.snooze($1, $2, '1 h')", true, 0, jobq.StateScheduled, jobq.OutcomeSnoozed},
		"fail":                         {"jobq.fail($1, $2, 'e')", true, 0, jobq.StateFailed, jobq.OutcomeFailed},
		"complete, rolled back":        {"jobq.complete($1, $2)", false, 0, jobq.StateFailed, jobq.OutcomeFailed},
		"snooze, rolled back, exit 75": {"jobq.snooze($1, $2, '1 h')", false, 75, jobq.StateScheduled, jobq.OutcomeSnoozed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			client, url := newOwn(t)
			config := client.Pool().Config()
			var sent endsSent
			config.ConnConfig.Tracer = &sent
			workers, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
			require.NoError(t, err)
			folder := t.TempDir()
			w := newWorker(t, workers, worker.Config{})
			p := programs.New(w)
			require.NoError(t, p.HandleCommand("k", ownCommand(url, fmt.Sprintf(`cd %s; printf %%s "$JOBQ_RUN_TOKEN" > new; mv new token; while ! test -e go; do sleep 0.05; done; echo then; exit %d`, folder, test.exit)), nil))
			r := run(t, w)
			id := enqueueRaw(t, client, "k", "{}", &jobq.EnqueueOptions{MaxAttempts: 1})
			token := awaitFile(t, filepath.Join(folder, "token"))
			tx, err := client.Pool().Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(ctx) }()
			_, err = tx.Exec(ctx, "insert into public.effect values ($1)", id)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "select "+test.call, id, token)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "go"), nil, 0o600))
			require.Eventually(t, sent.Load, patience, tick)
			wantEffects := 0
			if test.commits {
				wantEffects = 1
				require.NoError(t, tx.Commit(ctx))
			} else {
				require.NoError(t, tx.Rollback(ctx))
			}
			awaitState(t, client, id, test.state)
			require.NoError(t, r.drain())
			require.Equal(t, wantEffects, effects(t, client.Pool(), id))
			kept := attempts(t, client, id)
			require.Len(t, kept, 1)
			require.Equal(t, test.outcome, kept[0].Outcome)
			require.Contains(t, kept[0].Output, "then")
			require.NotEmpty(t, kept[0].Usage)
			counts := r.Counts()
			require.Equal(t, []int64{1, 0}, []int64{counts.Completed + counts.Snoozed + counts.Failed, counts.Lost})
			require.Equal(t, test.outcome == jobq.OutcomeCompleted, counts.Completed == 1)
			require.Equal(t, test.outcome == jobq.OutcomeSnoozed, counts.Snoozed == 1)
			awaitState(t, client, id, test.state)
		})
	}
}

// A job that its program has put back, and that the same worker runs again before the
// program has ended, ends that program, and no other run of the same lease.
func TestEndsItselfAndRunsAgain(t *testing.T) {
	t.Parallel()
	client, url := newOwn(t)
	folder := t.TempDir()
	w := newWorker(t, client, worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 3}}})
	p := programs.New(w)
	require.NoError(t, p.HandleCommand("again", ownCommand(url, fmt.Sprintf(`
		if mkdir %[1]s/first; then echo "select jobq.snooze(:id, :'token', '0')" | sql; sleep 1000; fi
		echo "select jobq.complete(:id, :'token')" | sql; : > %[1]s/second`, folder)), nil))
	require.NoError(t, p.HandleCommand("beside", shellCommand(fmt.Sprintf(`while ! test -e %s/second; do sleep 0.05; done`, folder)), nil))
	again, beside := enqueueRaw(t, client, "again", "{}", nil), enqueueRaw(t, client, "beside", "{}", nil)
	r := run(t, w)
	awaitState(t, client, again, jobq.StateCompleted)
	require.Zero(t, awaitState(t, client, beside, jobq.StateCompleted).Crashes)
	require.NoError(t, r.drain())
	require.Len(t, attempts(t, client, beside), 1)
	counts := r.Counts()
	require.Zero(t, counts.Lost)
	require.EqualValues(t, 1, counts.Snoozed)
	require.EqualValues(t, 2, counts.Completed)
}

// A job that its program has completed, and that somebody has requeued before the program has
// ended, counts as completed.
func TestEndsItselfAndIsRequeued(t *testing.T) {
	t.Parallel()
	client, url := newOwn(t)
	folder := t.TempDir()
	w := newWorker(t, client, worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}})
	p := programs.New(w)
	require.NoError(t, p.HandleCommand("k", ownCommand(url, fmt.Sprintf(`
		echo "select jobq.complete(:id, :'token')" | sql; if mkdir %s/first; then echo "select jobq.requeue(:id)" | sql; fi`, folder)), nil))
	id := enqueueRaw(t, client, "k", "{}", nil)
	r := run(t, w)
	require.Eventually(t, func() bool { return programs.Ended(p, "k") == 2 }, patience, tick)
	awaitState(t, client, id, jobq.StateCompleted)
	require.NoError(t, r.drain())
	counts := r.Counts()
	require.Equal(t, []int64{2, 0, 0}, []int64{counts.Completed, counts.Failed, counts.Lost})
}

// A lease that is lost in the middle of a program's transaction takes the effect with it.
func TestEndsItselfLost(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, url := newOwn(t)
	keepLeases(t, client, jobq.HeartbeatTicker)
	folder := t.TempDir()
	w := newWorker(t, client, worker.Config{})
	p := programs.New(w)
	require.NoError(t, p.HandleCommand("k", ownCommand(url, fmt.Sprintf(`
		{ echo "begin; insert into public.effect values (:id);"; echo "\\! : > %[1]s/begun"; echo "\\! while ! test -e %[1]s/lost; do sleep 0.05; done"
		echo "select jobq.complete(:id, :'token'); commit;"; } | sql`, folder)), nil))
	r := run(t, w)
	id := enqueueRaw(t, client, "k", "{}", nil)
	awaitFile(t, filepath.Join(folder, "begun"))
	require.NoError(t, pgtest.StealLeases(ctx, client.Pool(), "thief", id))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "lost"), nil, 0o600))
	require.Eventually(t, func() bool { return r.Counts().Lost == 1 }, patience, tick)
	require.NoError(t, r.drain())
	require.Equal(t, jobq.StateRunning, awaitState(t, client, id, jobq.StateRunning).State)
	require.Zero(t, effects(t, client.Pool(), id))
	require.Empty(t, attempts(t, client, id))
}

// Kept processes and HTTP servers get the token with the job. An answer of success
// counts only with a stored end, which is counted once.
func TestKeptHandlersEndThemselves(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, url := newOwn(t)
	w := newWorker(t, client, worker.Config{})
	p := programs.New(w)
	stream := ownCommand(url, `while read -r job; do
		JOBQ_JOB_ID=$(echo "$job" | sed 's/.*"id":\([0-9]*\).*/\1/') JOBQ_RUN_TOKEN=$(echo "$job" | sed 's/.*"run_token":"\([^"]*\)".*/\1/')
		case "$job" in *pay*) echo "begin; insert into public.effect values (:id); select jobq.complete(:id, :'token', '{\"a\": 1}'); commit" | sql >&2;; esac
		echo "{\"id\": $JOBQ_JOB_ID, \"done\": true}"
	done`)
	require.NoError(t, p.HandleStream("stream", programs.Stream{Command: stream}, nil))
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		var job struct {
			ID       int64             `json:"id"`
			RunToken string            `json:"run_token"`
			Args     map[string]string `json:"args"`
		}
		err := json.NewDecoder(request.Body).Decode(&job)
		if err == nil && job.Args["do"] == "pay" {
			err = pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "insert into public.effect values ($1)", job.ID); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, `select jobq.complete($1, $2, '{"a": 1}')`, job.ID, job.RunToken)
				return err
			})
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	require.NoError(t, p.HandleHTTP("http", programs.HTTP{URL: server.URL, EndsItself: true}, nil))
	r := run(t, w)
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	for _, kind := range []string{"stream", "http"} {
		paid, forgotten := enqueueRaw(t, client, kind, `{"do": "pay"}`, once), enqueueRaw(t, client, kind, `{"do": "nothing"}`, once)
		require.JSONEq(t, `{"a": 1}`, string(awaitState(t, client, paid, jobq.StateCompleted).Result), kind)
		require.Contains(t, awaitState(t, client, forgotten, jobq.StateFailed).LastError, "no transaction of its own has ended the job", kind)
		require.Equal(t, 1, effects(t, client.Pool(), paid), kind)
		require.Zero(t, effects(t, client.Pool(), forgotten), kind)
	}
	require.NoError(t, r.drain())
	require.Zero(t, r.Counts().Lost)
	var completed, leases int
	require.NoError(t, client.Pool().QueryRow(ctx, "select sum(completed), (select count(*) from jobq.lease) from jobq.stats").Scan(&completed, &leases))
	require.Equal(t, []int{2, 0}, []int{completed, leases})
}
