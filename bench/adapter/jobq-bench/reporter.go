package main

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	_ "embed" // for adapter.json
)

const system = "jobq"

// manifest is adapter.json: the same tables are named before and after the start.
//
//go:embed adapter.json
var manifest []byte

// reporter writes lines of JSON.
type reporter struct {
	settings
	out *json.Encoder
}

func newReporter(s settings, out io.Writer) *reporter { return &reporter{s, json.NewEncoder(out)} }

// stamp is a time as the contract writes it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// descriptor is the first line: what this is.
func (r *reporter) descriptor() error {
	line := struct {
		Kind          string   `json:"kind"`
		System        string   `json:"system"`
		EventTables   []string `json:"event_tables"`
		EventIndexes  []string `json:"event_indexes"`
		Extensions    []string `json:"extensions"`
		Version       string   `json:"version"`
		SchemaVersion string   `json:"schema_version"`
		DBName        string   `json:"db_name"`
		StartedAt     string   `json:"started_at"`
		Instance      int      `json:"instance_id"`
	}{}
	if err := json.Unmarshal(manifest, &line); err != nil {
		return err
	}
	line.Kind, line.Version, line.SchemaVersion, line.StartedAt, line.Instance = "descriptor", version(), "current", stamp(time.Now()), r.instance
	if u, err := url.Parse(r.databaseURL); err == nil && strings.Trim(u.Path, "/") != "" {
		line.DBName = strings.Trim(u.Path, "/")
	}
	return r.out.Encode(line)
}

// version is that of jobq in this program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == "github.com/jobq-dev/jobq" {
				return dependency.Version
			}
		}
	}
	return "unknown"
}

// figure is one measured value.
type figure struct {
	metric        string
	value         float64
	windowSeconds float64
	observed      bool // the same for all processes, so that one of them reports it
}

// nextSample is the next full multiple of the interval since 1970: so the samples of all systems meet on one time axis.
func nextSample(now time.Time, every time.Duration) time.Time {
	ms := every.Milliseconds()
	return time.UnixMilli((now.UnixMilli()/ms + 1) * ms)
}

// sample reports at each full interval until the context ends.
func (r *reporter) sample(ctx context.Context, m *meter, p *producer) error {
	if pause(ctx, time.Until(nextSample(time.Now(), r.sampleEvery))) != nil {
		return nil
	}
	last, enqueued, completed := time.Now(), m.enqueued.Load(), m.completed.Load()
	for pause(ctx, time.Until(nextSample(time.Now(), r.sampleEvery))) == nil {
		now, enqueuedNow, completedNow := time.Now(), m.enqueued.Load(), m.completed.Load()
		seconds, window := now.Sub(last).Seconds(), r.sampleEvery.Seconds()
		waited := m.latencies(now, 0.50, 0.95, 0.99)
		ms := func(i int) float64 { return float64(waited[i].Microseconds()) / 1e3 }
		for _, f := range []figure{
			{"claim_p50_ms", ms(0), windowSeconds, false},
			{"claim_p95_ms", ms(1), windowSeconds, false},
			{"claim_p99_ms", ms(2), windowSeconds, false},
			{"enqueue_rate", float64(enqueuedNow-enqueued) / seconds, window, false},
			{"completion_rate", float64(completedNow-completed) / seconds, window, false},
			{"queue_depth", float64(m.depth.Load()), 0, true},
			{"producer_target_rate", float64(p.target.Load()), 0, true},
		} {
			if f.observed && !r.observes() {
				continue
			}
			if err := r.figure(now, f); err != nil {
				return err
			}
		}
		last, enqueued, completed = now, enqueuedNow, completedNow
	}
	return nil
}

func (r *reporter) figure(at time.Time, f figure) error {
	return r.out.Encode(struct {
		Time        string  `json:"t"`
		System      string  `json:"system"`
		Instance    int     `json:"instance_id"`
		Kind        string  `json:"kind"`
		SubjectKind string  `json:"subject_kind"`
		Subject     string  `json:"subject"`
		Metric      string  `json:"metric"`
		Value       float64 `json:"value"`
		Window      float64 `json:"window_s"`
	}{stamp(at), system, r.instance, "adapter", "adapter", "", f.metric, f.value, f.windowSeconds})
}
