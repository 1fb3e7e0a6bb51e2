package metrics_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
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

// prometheusVariable names the folder that has prometheus and promtool, where PATH has not.
const prometheusVariable = "JOBQ_TEST_PROMETHEUS"

const (
	rulesFile     = "../deploy/prometheus/jobq.rules.yaml"
	rulesTestFile = "../deploy/prometheus/jobq.rules.test.yaml"
)

// prometheusProgram finds prometheus or promtool.
func prometheusProgram(t *testing.T, name string) string {
	t.Helper()
	if folder := os.Getenv(prometheusVariable); folder != "" {
		return filepath.Join(folder, name)
	}
	program, err := exec.LookPath(name)
	if err != nil {
		pgtest.Missing(t, "prometheus", "install Prometheus (Debian: apt-get install prometheus), or name its folder in "+prometheusVariable)
		t.SkipNow()
	}
	return program
}

// scraper is a real Prometheus that scrapes a server of the test.
type scraper struct {
	*testing.T
	address string
}

// startPrometheus starts one with the rules of deploy/, whose alerts do not wait: their
// `for` is 0. A scrape may take the 5 s between two, so that a busy machine fails few.
func startPrometheus(t *testing.T, target string) *scraper {
	t.Helper()
	folder := t.TempDir()
	rules := regexp.MustCompile(`for: \d+m`).ReplaceAllString(read(t, rulesFile), "for: 0s")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "rules.yaml"), []byte(rules), 0o600))
	config := fmt.Sprintf("global: {scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 100ms}\nrule_files: [rules.yaml]\n"+
		"scrape_configs: [{job_name: jobq, static_configs: [{targets: [%q]}]}]\n", target)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "prometheus.yaml"), []byte(config), 0o600))
	var log lockedBuffer
	command := exec.Command(prometheusProgram(t, "prometheus"), "--config.file="+filepath.Join(folder, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address=127.0.0.1:0", "--log.level=info")
	command.Stderr = &log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
	})
	p := &scraper{T: t}
	address := regexp.MustCompile(`msg="Listening on" address=(127\.0\.0\.1:\d+)`)
	require.Eventually(t, func() bool {
		found := address.FindStringSubmatch(log.String())
		if found != nil {
			p.address = found[1]
		}
		return found != nil
	}, patience, 10*time.Millisecond, "prometheus does not listen: %s", &log)
	return p
}

// lockedBuffer is a buffer that a program fills while the test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// sample is one series of an answer.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// ask sends a query, and says whether Prometheus could answer it.
func (p *scraper) ask(query string) (samples []sample, err error) {
	_, body := get(p.T, "http://"+p.address+"/api/v1/query?query="+url.QueryEscape(query))
	var answer struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", body, err)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s", answer.Error)
	}
	return answer.Data.Result, nil
}

// await waits until a query has an answer that is not empty.
func (p *scraper) await(query string) (samples []sample) {
	p.Helper()
	require.Eventually(p, func() bool {
		var err error
		samples, err = p.ask(query)
		return err == nil && len(samples) > 0
	}, patience, 50*time.Millisecond, "no answer to %s", query)
	return samples
}

// awaitSilence waits until a query has an empty answer.
func (p *scraper) awaitSilence(query string) {
	p.Helper()
	require.Eventually(p, func() bool {
		samples, err := p.ask(query)
		return err == nil && len(samples) == 0
	}, patience, 50*time.Millisecond, "there is still an answer to %s", query)
}

// A real Prometheus scrapes a real worker and its database, answers all queries of the
// dashboard with figures, and evaluates the alert rules: one of them fires while a queue
// has a job and no worker, and ends when a worker comes. No other alert goes on.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	client := jobtest.Client(t)
	quiet := slog.New(slog.DiscardHandler)
	runs := metrics.NewRuns()
	newWorker := func(queue string) *worker.Worker {
		w, err := worker.New(client, &worker.Config{
			NoJanitor: true,
			Logger:    quiet, Middleware: []worker.Middleware{runs.Middleware}, Queues: map[string]worker.QueueConfig{queue: {Slots: 2}},
		})
		require.NoError(t, err)
		require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[jobtest.Greeting]) error { return nil }, nil))
		return w
	}
	w, late := newWorker("default"), newWorker("late")
	j, err := janitor.New(client, &janitor.Config{Logger: quiet})
	require.NoError(t, err)
	server := httptest.NewServer(metrics.Handler(func() []string { return nil },
		metrics.NewWorker(w), runs, metrics.NewJanitor(j), metrics.NewDatabase(monitor.New(client))))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { _ = w.Run(ctx) })
	running.Go(func() { _ = j.Run(ctx) })

	p := startPrometheus(t, strings.TrimPrefix(server.URL, "http://"))
	p.await("jobq_worker_ready == 1")
	jobtest.Enqueue(t, client, nil)
	jobtest.Enqueue(t, client, &jobq.EnqueueOptions{Queue: "late"})
	firing := `ALERTS{alertname="JobqQueueWithoutWorker", queue="late", alertstate="firing"}`
	p.await(firing)
	p.await(`sum(jobq_worker_runs_total{outcome="completed"}) == 1`)

	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "../deploy/grafana/jobq.json")), &dashboard))
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			p.await(target.Expr)
		}
	}
	running.Go(func() { _ = late.Run(ctx) })
	p.awaitSilence(firing)
	// A busy machine can delay a scrape or a look at the database, and the alert of that then
	// fires for a while, without its `for`.
	for _, name := range []string{"JobqQueueLag", "JobqDatabaseAway", "JobqMetricsAway", "JobqWorkerNotReady", "JobqNoJanitor"} {
		p.awaitSilence(`ALERTS{alertname="` + name + `", alertstate="firing"}`)
	}
}

// The rules and the configuration are what Prometheus takes for such. Each alert begins
// after its `for` and ends, as jobq.rules.test.yaml has it by promtool's own clock; that
// file has for each alert a time when it fires, and one before and after when it is silent.
func TestPromtool(t *testing.T) {
	t.Parallel()
	promtool := prometheusProgram(t, "promtool")
	for _, test := range []struct{ kind, file, want string }{
		{"check rules", rulesFile, "SUCCESS: 9 rules found"},
		{"check config", "../deploy/prometheus/prometheus.yaml", "SUCCESS: 1 rule files found"},
		{"test rules", rulesTestFile, "SUCCESS"},
	} {
		out, err := exec.Command(promtool, append(strings.Fields(test.kind), test.file)...).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), test.want)
	}
}

// Every alert has a test of promtool's in which it fires at two times, and is silent
// before and after them.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, rulesFile)), &rules))
	var tested struct {
		Tests []struct {
			Times []struct {
				Alert  string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, rulesTestFile)), &tested))
	stories := map[string]bool{}
	for _, test := range tested.Tests {
		story := map[string]string{}
		for _, at := range test.Times {
			if len(at.Alerts) > 0 {
				story[at.Alert] += " fires"
			} else {
				story[at.Alert] += " silent"
			}
		}
		for alert, told := range story {
			stories[alert] = stories[alert] || told == " silent fires fires silent"
		}
	}
	for _, rule := range rules.Groups[0].Rules {
		require.True(t, stories[rule.Alert], "%s has no test in which it begins and ends", rule.Alert)
	}
}
