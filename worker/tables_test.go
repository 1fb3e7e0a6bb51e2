package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/sql/migrations"
	"github.com/jobq-dev/jobq/worker"
)

// migrated records a migration of a later jobq, with which programs work that know the
// version.
func migrated(t *testing.T, client *jobq.Client, version, compatibleFrom int) {
	t.Helper()
	exec(t, client.Pool(), "insert into jobq.jobq_migration (version, compatible_from) values ($1, $2)", version, compatibleFrom)
}

// awaitBeat waits until the condition holds, and has workers look at the tables
// meanwhile, as a hint that somebody watches does.
func awaitBeat(t *testing.T, client *jobq.Client, condition func() bool, otherwise string) {
	t.Helper()
	require.Eventually(t, func() bool {
		exec(t, client.Pool(), "select pg_notify(jobq.channel('watch'), '')")
		return condition()
	}, patience, 100*time.Millisecond, otherwise)
}

// A worker goes on beside tables of a later jobq that are compatible with it. When a
// migration ends that, it drains: what runs ends as usual, nothing more begins, and Run
// says why.
func TestTablesOfALaterVersion(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	latest := migrations.Latest()
	begun, finish := make(chan int, 10), make(chan struct{})
	w := newWorker(t, client, worker.Config{DrainTimeout: time.Hour})
	require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[task]) error {
		begun <- job.Args.N
		if job.Args.N == 1 {
			<-finish
		}
		return nil
	}, nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer cancel()
	running := enqueue(t, client, 1, nil)
	require.Equal(t, 1, receive(t, begun, "the start of the first job"))

	migrated(t, client, latest+1, latest)
	awaitBeat(t, client, func() bool {
		return number(t, client, `select count(*) from jobq.worker w
			where w.heartbeat_at > (select max(m.created_at) from jobq.jobq_migration m)`) == 1
	}, "the worker does not look at the tables")
	awaitState(t, client, enqueue(t, client, 2, nil), jobq.StateCompleted)

	migrated(t, client, latest+2, latest+1)
	awaitBeat(t, client, func() bool { return worker.Draining(w) }, "the worker does not drain")
	waiting := enqueue(t, client, 3, nil)
	close(finish)
	awaitState(t, client, running, jobq.StateCompleted)
	err := receive(t, ended, "the end of the worker")
	require.ErrorIs(t, err, jobq.ErrNewerSchema)
	require.ErrorContains(t, err, "upgrade jobq")
	awaitState(t, client, waiting, jobq.StateAvailable)
}
