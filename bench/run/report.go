package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/measure"
)

// report writes the results as they are kept in RESULTS.md.
func (l *lab) report(ctx context.Context, out io.Writer, done []scenario, started time.Time) error {
	settings, err := measure.Settings(ctx, l.admin)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# Results\n\nWritten by `make bench`; do not edit. Medians of %d interleaved rounds (least–most), on one machine for server\n"+
		"and clients. Only ratios within one run mean anything: the machine is shared and its speed changes by the hour.\n\n", l.rounds)
	fmt.Fprintf(out, "- Date: %s to %s\n- Commit: %s\n- Command: `%s`\n- Machine: %s\n- Clients: %s, Node %s, %s\n- Server: PostgreSQL",
		started.Format("2006-01-02 15:04"), time.Now().UTC().Format("15:04 UTC"), output("git", "describe", "--always", "--dirty"),
		"go run ./run "+strings.Join(os.Args[1:], " "), machine(), runtime.Version(), strings.TrimPrefix(output(onNode("")(l.peers)[0], "--version"), "v"), l.versions())
	for _, setting := range settings {
		fmt.Fprintf(out, " %s,", strings.TrimPrefix(setting.Name+" "+setting.Value, "server_version "))
	}
	fmt.Fprint(out, " else as shipped\n")
	l.writeBars(out)
	for _, s := range done {
		fmt.Fprintf(out, "\n## %s\n\n%s\n\n", s.title, s.about)
		l.sheet.write(out, s.name)
	}
	if len(l.sheet.notes) > 0 {
		fmt.Fprint(out, "\n## What went wrong\n\n")
		for _, note := range l.sheet.notes {
			fmt.Fprintf(out, "- %s\n", note)
		}
	}
	return nil
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

// output is what a program prints, or that it is unknown.
func output(name string, args ...string) string {
	content, err := exec.CommandContext(context.Background(), name, args...).Output() // #nosec G204 -- fixed programs
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(content))
}
