package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/metrics"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is when a test gives up.
const patience = 60 * time.Second

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}

// A real worker, janitor and database are scraped while they work; /readyz follows
// the worker's life; and docs/metrics-reference.md has exactly what is exported.
func TestScrapes(t *testing.T) {
	t.Parallel()
	client := jobtest.Client(t)
	quiet := slog.New(slog.DiscardHandler)
	runs := metrics.NewRuns()
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: quiet, Middleware: []worker.Middleware{runs.Middleware}})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[jobtest.Greeting]) error {
		if job.Args.Name == "fail" {
			return worker.Discard(fmt.Errorf("as it was told"))
		}
		return nil
	}, nil))
	j, err := janitor.New(client, &janitor.Config{Logger: quiet})
	require.NoError(t, err)
	doctor := metrics.NewDoctor(func(context.Context) (metrics.Findings, error) { return metrics.Findings{Warning: 1}, nil }, time.Hour)
	server := httptest.NewServer(metrics.Handler(func() []string { return w.Health().Problems() },
		metrics.NewWorker(w), runs, metrics.NewJanitor(j), metrics.NewDatabase(monitor.New(client)), doctor))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	code, body := get(t, server.URL+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "not started: no jobs are claimed yet\n", body)
	code, _ = get(t, server.URL+"/healthz")
	require.Equal(t, http.StatusOK, code)

	jobtest.Enqueue(t, client, &jobq.EnqueueOptions{Queue: "waits"})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	running.Go(func() { _ = j.Run(ctx) })
	running.Go(func() { doctor.Run(ctx) })
	defer running.Wait()
	defer stop()
	require.Eventually(t, func() bool {
		code, _ := get(t, server.URL+"/readyz")
		return code == http.StatusOK
	}, patience, 5*time.Millisecond, "not ready")
	get(t, server.URL+"/metrics") // from now on it counts what ends
	jobtest.Enqueue(t, client, nil)
	_, err = client.Enqueue(context.Background(), jobtest.Greeting{Name: "fail"}, nil)
	require.NoError(t, err)

	lines := []string{
		`jobq_worker_runs_total{outcome="completed"} 1`, `jobq_worker_runs_total{outcome="failed"} 1`, `jobq_worker_claimed_total 2`,
		`jobq_worker_run_seconds_count{kind="greeting",queue="default"} 2`, `jobq_worker_wait_seconds_count{kind="greeting",queue="default"} 2`,
		`jobq_doctor_findings{severity="warning"} 1`, `jobq_jobs_added_total 3`,
		`jobq_queue_ended_total{outcome="completed",queue="default"} 1`, `jobq_queue_ended_total{outcome="failed",queue="default"} 1`,
		`jobq_kind_ended_total{kind="greeting",outcome="completed"} 1`, `jobq_kind_ended_total{kind="greeting",outcome="failed"} 1`, `jobq_worker_ready 1`, `jobq_worker_notified 1`, `jobq_janitor_leading 1`, `jobq_up 1`,
		`jobq_queue_jobs{queue="waits",state="available"} 1`, `jobq_queue_slots{queue="default"} 10`,
	}
	var scraped string
	require.Eventually(t, func() bool {
		_, scraped = get(t, server.URL+"/metrics")
		return !slices.ContainsFunc(append(lines, "jobq_janitor_last_look_timestamp_seconds ", `chore="remove dead workers"`),
			func(line string) bool { return !strings.Contains(scraped, line) })
	}, patience, 50*time.Millisecond, "not all lines are there")

	stop()
	running.Wait()
	code, body = get(t, server.URL+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "draining")

	exported := make(map[string]string)
	for _, match := range regexp.MustCompile(`(?m)^# (HELP|TYPE) (jobq_\w+) (.*)$`).FindAllStringSubmatch(scraped, -1) {
		if match[1] == "HELP" {
			exported[match[2]] = match[3]
		} else {
			exported[match[2]] = match[3] + " | " + exported[match[2]]
		}
	}
	documented := make(map[string]string)
	for _, match := range regexp.MustCompile("(?m)^\\| `(jobq_\\w+)` \\| (\\w+) \\| [^|]*\\| (.*) \\|$").FindAllStringSubmatch(read(t, "../docs/metrics-reference.md"), -1) {
		documented[match[1]] = match[2] + " | " + match[3]
	}
	require.Equal(t, exported, documented, "docs/metrics-reference.md")
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// The alert rules and the dashboard are well formed, and name only metrics that
// docs/metrics-reference.md has, which TestScrapes compares with what is exported; docs/metrics.md
// says what to do at each alert.
func TestRulesAndDashboard(t *testing.T) {
	t.Parallel()
	guide, reference := read(t, "../docs/metrics.md"), read(t, "../docs/metrics-reference.md")
	var expressions []string
	var rules struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(read(t, rulesFile)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&rules))
	require.Len(t, rules.Groups, 1)
	require.NotEmpty(t, rules.Groups[0].Rules)
	for _, rule := range rules.Groups[0].Rules {
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		require.Contains(t, guide, "| `"+rule.Alert+"` |")
		expressions = append(expressions, rule.Expr)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "../deploy/grafana/jobq.json")), &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	for _, panel := range dashboard.Panels {
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	for _, expression := range expressions {
		names := regexp.MustCompile(`jobq_\w+`).FindAllString(expression, -1)
		require.NotEmpty(t, names, expression)
		for _, name := range names {
			require.Contains(t, reference, "| `"+strings.TrimSuffix(name, "_bucket")+"` |", expression)
		}
	}
}

// Programs that do not import this package do not link the Prometheus client.
func TestOthersLinkNoPrometheus(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"jobq", "jobq/worker", "jobq/worker/programs", "jobq/janitor", "jobq/monitor", "jobq/operator"} {
		out, err := exec.Command("go", "list", "-deps", "github.com/jobq-dev/"+name).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "github.com/jobq-dev/jobq\n")
		require.NotContains(t, string(out), "github.com/prometheus/", name)
	}
}
