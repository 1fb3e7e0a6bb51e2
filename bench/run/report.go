package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/jobq-dev/jobq/internal/measure"
)

// report writes the results as they are kept in RESULTS.md.
func (l *lab) report(ctx context.Context, out io.Writer) error {
	settings, err := measure.Settings(ctx, l.admin)
	if err != nil {
		return err
	}
	fmt.Fprint(out, "# Results\n\nWritten by `make bench`; do not edit. Medians of interleaved rounds (least–most), on one machine for server and\n"+
		"clients. Only ratios within one table mean anything: the machine is shared, and its speed changes by the hour.\n\n")
	environment := l.environment()
	fmt.Fprintf(out, "%s\n- Server: PostgreSQL", environment)
	for _, setting := range settings {
		fmt.Fprintf(out, " %s,", strings.TrimPrefix(setting.Name+" "+setting.Value, "server_version "))
	}
	fmt.Fprintf(out, " else as shipped\n- At the start of the last run: a round trip took %.2f ms, a commit of one row %.2f ms (medians)\n",
		l.commit.RoundTrip.P50.Seconds()*1000, l.commit.Commit.P50.Seconds()*1000)
	l.writeBars(out)
	for _, s := range scenarios() {
		run, ok := l.sheet.runs[s.name]
		if !ok {
			continue
		}
		fmt.Fprintf(out, "\n## %s\n\n%s\n\n%s to %s, %s, commit %s, `%s`\n\n", s.title, s.about, run.Started.Format("2006-01-02 15:04"),
			run.Ended.Format("15:04 UTC"), count(run.Rounds, "round"), run.Commit, run.Command)
		if run.Environment != environment {
			fmt.Fprintf(out, "Elsewhere:\n\n%s\n\n", run.Environment)
		}
		if run.Scale != 1 {
			fmt.Fprintf(out, "At a scale of %g: these figures mean little.\n\n", run.Scale)
		}
		l.sheet.write(out, s.name)
		for _, problem := range run.Problems {
			fmt.Fprintf(out, "\nProblem: %s\n", problem)
		}
	}
	return nil
}

// environment is what the clients run on, as the report says it.
func (l *lab) environment() string {
	return fmt.Sprintf("- Machine: %s\n- Clients: %s, Node %s, %s", machine(), runtime.Version(),
		strings.TrimPrefix(output(onNode("")(l.peers)[0], "--version"), "v"), l.versions())
}

// latencies tells how fast the machine's disk is now.
func (l *lab) latencies(ctx context.Context) (measure.Latencies, error) {
	conn, err := l.admin.Acquire(ctx)
	if err != nil {
		return measure.Latencies{}, err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "create table committed (at timestamptz)"); err != nil {
		return measure.Latencies{}, err
	}
	return measure.MeasureLatencies(ctx, conn.Conn(), latencySamples, "insert into committed values (now())")
}

// versions of the peers, as installed.
func (l *lab) versions() string {
	versions := []string{"River " + output("go", "list", "-m", "-f", "{{.Version}}", "github.com/riverqueue/river")}
	for _, name := range []string{"graphile-worker", "pg-boss"} {
		version := output(onNode("")(l.peers)[0], "-p", fmt.Sprintf("JSON.parse(require('fs').readFileSync('%s/node_modules/%s/package.json')).version", l.peers, name))
		versions = append(versions, name+" "+version)
	}
	return strings.Join(versions, ", ")
}

// machine is what this one is, as far as Linux tells.
func machine() string {
	model := "unknown processor"
	if content, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(content)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
			}
		}
	}
	memory := ""
	if content, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kilobytes int
		if _, err := fmt.Sscanf(string(content), "MemTotal: %d kB", &kilobytes); err == nil {
			memory = fmt.Sprintf(", %d GB", kilobytes>>20)
		}
	}
	return fmt.Sprintf("%d cores, %s%s, %s", runtime.NumCPU(), model, memory, output("uname", "-sr"))
}

// version is the commit of the sources, and whether they differ from it; that
// results are new does not count.
func version() string {
	commit := output("git", "describe", "--always")
	if output("git", "status", "--porcelain", "--", ":/", ":(exclude)RESULTS.*") != "" {
		commit += "-dirty"
	}
	return commit
}

// output is what a program prints, or that it is unknown.
func output(name string, args ...string) string {
	content, err := exec.CommandContext(context.Background(), name, args...).Output() // #nosec G204 -- fixed programs
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(content))
}
