package metrics_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/metrics"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// exportMetrics is what docs/metrics.md shows: jobq's figures go where OpenTelemetry's
// exporter sends them, beside the program's own.
func exportMetrics(exporter metric.Exporter, collectors ...prometheus.Collector) *metric.MeterProvider {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	jobqMetrics := bridge.NewMetricProducer(bridge.WithGatherer(registry))
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(jobqMetrics))
	return metric.NewMeterProvider(metric.WithReader(reader))
}

// exported keeps what an exporter would send.
type exported struct {
	mu      sync.Mutex
	metrics map[string]metricdata.Aggregation // guarded by mu
}

func (*exported) Temporality(kind metric.InstrumentKind) metricdata.Temporality {
	return metric.DefaultTemporalitySelector(kind)
}

func (*exported) Aggregation(kind metric.InstrumentKind) metric.Aggregation {
	return metric.DefaultAggregationSelector(kind)
}

func (e *exported) Export(_ context.Context, all *metricdata.ResourceMetrics) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.metrics = make(map[string]metricdata.Aggregation)
	for _, scope := range all.ScopeMetrics {
		for _, one := range scope.Metrics {
			e.metrics[one.Name] = one.Data
		}
	}
	return nil
}

func (*exported) ForceFlush(context.Context) error { return nil }
func (*exported) Shutdown(context.Context) error   { return nil }

func (e *exported) of(name string) metricdata.Aggregation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.metrics[name]
}

// OpenTelemetry's bridge exports what a worker and the database have for Prometheus:
// counters as sums that only grow, gauges, and histograms with their queue and kind.
func TestOpenTelemetry(t *testing.T) {
	t.Parallel()
	client := jobtest.Client(t)
	runs := metrics.NewRuns()
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler), Middleware: []worker.Middleware{runs.Middleware}})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[jobtest.Greeting]) error { return nil }, nil))
	exporter := new(exported)
	provider := exportMetrics(exporter, metrics.NewWorker(w), runs, metrics.NewDatabase(monitor.New(client)))
	defer func() { require.NoError(t, provider.Shutdown(context.Background())) }()

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	defer running.Wait()
	defer stop()
	jobtest.Enqueue(t, client, nil)
	require.Eventually(t, func() bool {
		require.NoError(t, provider.ForceFlush(ctx))
		sum, has := exporter.of("jobq_worker_runs_total").(metricdata.Sum[float64])
		if !has {
			return false
		}
		for _, point := range sum.DataPoints {
			if outcome, _ := point.Attributes.Value("outcome"); outcome.AsString() == "completed" && point.Value == 1 {
				return sum.IsMonotonic
			}
		}
		return false
	}, patience, 5*time.Millisecond, "the run is not exported")

	up := exporter.of("jobq_up").(metricdata.Gauge[float64])
	require.Len(t, up.DataPoints, 1)
	require.InDelta(t, 1, up.DataPoints[0].Value, 0)
	seconds := exporter.of("jobq_worker_run_seconds").(metricdata.Histogram[float64])
	require.Len(t, seconds.DataPoints, 1)
	require.EqualValues(t, 1, seconds.DataPoints[0].Count)
	queue, _ := seconds.DataPoints[0].Attributes.Value("queue")
	require.Equal(t, "default", queue.AsString())
}
