// Package metrics gives the figures of a worker, a janitor and a database to
// Prometheus. [NewWorker], [NewJanitor] and [NewDatabase] are collectors for a
// registry of yours, and [Handler] is a handler with a registry of its own.
// docs/metrics-reference.md has every metric.
//
// Only this package links the Prometheus client: programs that do not import it
// do without.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// metric is the description of a metric and its type.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func (m metric) send(to chan<- prometheus.Metric, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

func bit(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
