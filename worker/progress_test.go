package worker_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// Progress shows while the job runs, and a checkpoint is what the next run
// begins with.
func TestProgressAndCheckpoint(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	proceed := make(chan struct{})
	type place struct{ Line int }
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		var at place
		if found, err := job.Checkpoint(&at); err != nil || found {
			return errors.Join(err, job.SetResult(at))
		}
		job.Progress(40, "reading", "line 7")
		if err := job.SaveCheckpoint(ctx, place{7}); err != nil {
			return err
		}
		<-proceed
		return worker.Retry(0, errors.New("again"))
	})
	id := enqueue(t, client, 1, nil)
	require.Eventually(t, func() bool {
		job, err := client.Get(context.Background(), id)
		return err == nil && job.Progress != nil && job.Progress.Percent == 40 && job.Progress.Stage == "reading" && job.Progress.Message == "line 7"
	}, patience, 5*time.Millisecond)
	close(proceed)
	job := awaitState(t, client, id, jobq.StateCompleted)
	require.JSONEq(t, `{"Line":7}`, string(job.Result))
}

// Several goroutines of one run save checkpoints and read them. It is the race
// detector that finds fault.
func TestCheckpointsAtOnce(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		group, ctx := errgroup.WithContext(ctx)
		for i := range 4 {
			group.Go(func() error {
				var saved int
				err := job.SaveCheckpoint(ctx, i)
				_, readErr := job.Checkpoint(&saved)
				return errors.Join(err, readErr)
			})
		}
		return group.Wait()
	})
	awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
}

// A report that the database cannot take now is stored later, one that it
// refuses costs only itself, and a share of nothing is no percentage.
func TestProgressInTrouble(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	exec(t, client.Pool(), "create sequence public.tries")
	require.NoError(t, pgtest.BeforeProgress(context.Background(), client.Pool(), `
		if stage = 'refused' then raise 'no'; end if;
		if nextval('public.tries') < 3 then raise 'not now' using errcode = '40001'; end if;`))
	var both sync.WaitGroup
	both.Add(2)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		both.Done()
		both.Wait()
		if job.Args.N == 1 {
			job.Progress(1, "refused", "")
		} else {
			job.Progress(70, "", "")
			job.Progress(float32(math.NaN()), "taken", "")
		}
		<-ctx.Done()
		return nil
	})
	enqueue(t, client, 1, nil)
	taken := enqueue(t, client, 2, nil)
	require.Eventually(t, func() bool {
		job, err := client.Get(context.Background(), taken)
		return err == nil && job.Progress != nil && job.Progress.Stage == "taken" && job.Progress.Percent == 70
	}, patience, 5*time.Millisecond)
}
