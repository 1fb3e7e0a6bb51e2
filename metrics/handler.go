package metrics

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves three paths. /metrics has the collectors' figures, and those of
// the Go runtime and the process, from a registry of its own. /healthz answers 200
// while the process lives. /readyz answers 200 if problems returns nothing, and
// otherwise 503 with a line for each problem; nil problems means always ready.
//
// The collectors must differ: two workers need registries of yours, with
// prometheus.WrapRegistererWith. Handler panics when they do not differ.
func Handler(problems func() []string, of ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(of...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if problems == nil {
			answer(w, nil)
			return
		}
		answer(w, problems())
	})
	return mux
}

func answer(w http.ResponseWriter, problems []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(problems) == 0 {
		_, _ = w.Write([]byte("ok\n")) // whoever asked may have gone
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(strings.Join(problems, "\n") + "\n"))
}
