package janitor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/janitor"
)

// The janitor frees what waits for a job that is over, and cancels what waits for that. A
// leader hears of it: its own looks are an hour apart here.
func TestFreesWhatWaits(t *testing.T) {
	t.Parallel()
	for mode, scan := range map[janitor.Mode]time.Duration{janitor.Leader: time.Hour, janitor.Any: 20 * time.Millisecond} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			f := setUp(t)
			f.start(janitor.Config{Mode: mode, ScanInterval: scan})
			for range 3 { // each is told anew
				var graph jobq.Graph
				graph.Add("first", jobq.RawArgs{Name: "k"}, nil)
				graph.Add("always", jobq.RawArgs{Name: "k"}, &jobq.EnqueueOptions{OnParentFailure: jobq.RunOnParentFailure}, "first")
				graph.Add("never", jobq.RawArgs{Name: "k"}, nil, "first")
				graph.Add("later", jobq.RawArgs{Name: "k"}, &jobq.EnqueueOptions{OnParentFailure: jobq.RunOnParentFailure, Delay: time.Hour}, "never")
				jobs, err := f.client.EnqueueGraph(ctx, &graph)
				require.NoError(t, err)
				_, err = f.client.Cancel(ctx, jobs["first"].ID)
				require.NoError(t, err)
				f.eventually("select count(*) from jobq.job where state = 'available' and id = "+fmt.Sprint(jobs["always"].ID), 1)
				f.eventually("select count(*) from jobq.job where state = 'cancelled' and id = "+fmt.Sprint(jobs["never"].ID), 1)
				f.eventually("select count(*) from jobq.job where state = 'scheduled' and id = "+fmt.Sprint(jobs["later"].ID), 1)
			}
			f.eventually("select count(*) from jobq.dependency_look where not is_new", 0)
		})
	}
}
