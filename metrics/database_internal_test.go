package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/monitor"
)

// scrape is what /metrics says of collectors.
func scrape(t *testing.T, of ...prometheus.Collector) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	Handler(nil, of...).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, recorder.Code, recorder.Body)
	return recorder.Body.String()
}

// However often it is scraped, the database is read once in 5 seconds; and when it
// refuses, or does not answer, a scrape ends in time with the last figures.
func TestDatabaseIsReadSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads, hang, fail := 0, false, false
		head := time.Now().Add(-time.Minute)
		d := &Database{
			queues: func(ctx context.Context) ([]monitor.Queue, error) {
				reads++
				if hang {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				if fail {
					return nil, errors.New("refused")
				}
				return []monitor.Queue{{Name: "q", Available: 3, HeadRunAt: &head}}, nil
			}, minutes: func(context.Context, time.Duration) ([]monitor.Minute, error) { return nil, nil },
			kinds: func(context.Context, time.Duration) ([]monitor.KindMinute, error) { return nil, nil },
			added: func(context.Context) (int64, error) { return 7, nil },
		}
		for range 10 {
			text := scrape(t, d)
			require.Contains(t, text, "jobq_up 1\n")
			require.Contains(t, text, "jobq_jobs_added_total 7\n")
			require.Contains(t, text, `jobq_queue_head_age_seconds{queue="q"} 60`+"\n")
			require.Contains(t, text, `jobq_queue_jobs{queue="q",state="available"} 3`+"\n")
		}
		require.Equal(t, 1, reads)

		time.Sleep(readEvery) //nolint:forbidigo // of the bubble's clock
		fail = true
		text := scrape(t, d)
		require.Equal(t, 2, reads)
		require.Contains(t, text, "jobq_up 0\n")
		require.Contains(t, text, `jobq_queue_head_age_seconds{queue="q"} 60`+"\n", "the last figures")
		require.NotNil(t, d.Problems())

		time.Sleep(readEvery) //nolint:forbidigo // of the bubble's clock
		fail = false
		require.Nil(t, d.Problems())

		time.Sleep(readEvery) //nolint:forbidigo // of the bubble's clock
		hang = true
		began := time.Now()
		text = scrape(t, d)
		require.Equal(t, scrapeTimeout, time.Since(began))
		require.Contains(t, text, "jobq_up 0\n")
		require.Contains(t, text, `jobq_queue_jobs{queue="q",state="available"} 3`+"\n", "the last figures")
		time.Sleep(readTimeout) //nolint:forbidigo // the reading gives up
		synctest.Wait()
	})
}

// Sums by minute become counters that only grow: a minute that is read again counts for what has come since, what there was at the first
// reading does not count, and after an outage of an hour at most all of it is read, each minute once.
func TestEndsAreCountedOnce(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	minute := func(ago, completed, lost int64) ended {
		return ended{minuteOf{noon.Add(-time.Duration(ago) * time.Minute), "q"}, counts{completed: completed, lost: lost}}
	}
	e := ends{namesMax: queuesMax}
	require.Equal(t, endsSpan, e.span(time.Hour))
	e.add([]ended{minute(4, 10, 0), minute(3, 5, 1)})
	require.Equal(t, []total{{"q", counts{}}}, e.copies())
	e.add([]ended{minute(4, 10, 0), minute(3, 7, 1), minute(2, 1, 0)})
	require.Equal(t, []total{{"q", counts{completed: 3}}}, e.copies())
	e.add([]ended{minute(2, 1, 0)}) // those before are beyond the span
	require.Equal(t, []total{{"q", counts{completed: 3}}}, e.copies())
	require.Equal(t, endsSpan+10*time.Minute, e.span(10*time.Minute))
	require.Equal(t, endsSpanMax, e.span(24*time.Hour))
	e.add([]ended{minute(4, 10, 0), minute(3, 7, 2), minute(2, 4, 0), minute(0, 1, 0)})
	require.Equal(t, []total{{"q", counts{completed: 7, lost: 1}}}, e.copies())
	e.add([]ended{minute(-3*60, 1, 0)})
	require.Len(t, e.seen, 1, "old minutes are forgotten")
	for i := range queuesMax + 50 {
		e.add([]ended{{minuteOf{noon, fmt.Sprint("queue", i)}, counts{failed: 1}}})
	}
	totals := e.copies()
	require.Len(t, totals, queuesMax+1)
	require.Contains(t, totals, total{"other", counts{failed: 51}})
}

// The database is examined at intervals, whatever is scraped. When that fails, the last figures stay.
func TestDoctorExaminesAtIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		var fail atomic.Bool
		ctx, stop := context.WithCancel(t.Context())
		d := NewDoctor(func(context.Context) (Findings, error) {
			call := calls.Add(1)
			if fail.Load() {
				return Findings{}, errors.New("refused")
			}
			return Findings{Critical: int(call), Warning: 2}, nil
		}, time.Minute)
		require.NotContains(t, scrape(t, d), "jobq_doctor")
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		synctest.Wait()
		for range 3 {
			text := scrape(t, d)
			require.Contains(t, text, `jobq_doctor_findings{severity="critical"} 1`+"\n")
			require.Contains(t, text, `jobq_doctor_findings{severity="warning"} 2`+"\n")
			require.Contains(t, text, `jobq_doctor_findings{severity="note"} 0`+"\n")
		}
		require.EqualValues(t, 1, calls.Load())
		fail.Store(true)
		time.Sleep(time.Minute) //nolint:forbidigo // of the bubble's clock
		synctest.Wait()
		require.EqualValues(t, 2, calls.Load())
		require.Contains(t, scrape(t, d), `jobq_doctor_findings{severity="critical"} 1`+"\n")
		fail.Store(false)
		time.Sleep(time.Minute) //nolint:forbidigo // of the bubble's clock
		synctest.Wait()
		require.Contains(t, scrape(t, d), `jobq_doctor_findings{severity="critical"} 3`+"\n")
		stop()
		running.Wait()
	})
}

// The kinds beyond the first hundred share one label.
func TestKindsAreBounded(t *testing.T) {
	t.Parallel()
	runs := NewRuns()
	for i := range kindsMax + 50 {
		of := runs.of(pair{"q", fmt.Sprint("kind", i)})
		of.run.Observe(1)
		require.Same(t, of, runs.of(pair{"q", fmt.Sprint("kind", i)}))
	}
	text := scrape(t, runs)
	require.Equal(t, kindsMax+1, strings.Count(text, "jobq_worker_run_seconds_count{"))
	require.Contains(t, text, `jobq_worker_run_seconds_count{kind="other",queue="q"} 50`+"\n")
}

// The first pairs of queue and kind have histograms of their own, also when many runs of
// a pair are the first at once.
func TestRunsCountPairsOnce(t *testing.T) {
	t.Parallel()
	runs := NewRuns()
	for kind := range kindsMax {
		begin := make(chan struct{})
		var together sync.WaitGroup
		for range 8 {
			together.Go(func() {
				<-begin
				runs.of(pair{"q", strconv.Itoa(kind)})
			})
		}
		close(begin)
		together.Wait()
	}
	require.Zero(t, strings.Count(scrape(t, runs), `kind="other"`), "a pair has none of its own")
	runs.of(pair{"q", "one more"})
	require.Positive(t, strings.Count(scrape(t, runs), `kind="other"`))
}
