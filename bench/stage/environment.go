package stage

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/jobq-dev/jobq/internal/measure"
)

// latencySamples tell how fast the disk is.
const latencySamples = 500

// Describe writes the machine, the versions, the server's settings, and how fast its disk is.
func (s *Server) Describe(ctx context.Context, out io.Writer, disk measure.Latencies) error {
	settings, err := measure.Settings(ctx, s.Admin)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n- Server: PostgreSQL", s.Environment())
	for _, setting := range settings {
		fmt.Fprintf(out, " %s,", strings.TrimPrefix(setting.Name+" "+setting.Value, "server_version "))
	}
	fmt.Fprintf(out, " else as shipped\n- At the start of the last run: a round trip took %.2f ms, a commit of one row %.2f ms (medians)\n",
		disk.RoundTrip.P50.Seconds()*1000, disk.Commit.P50.Seconds()*1000)
	return nil
}

// Environment is what the clients run on, as the report says it.
func (s *Server) Environment() string {
	return fmt.Sprintf("- Machine: %s\n- Clients: %s, Node %s, %s", machine(), runtime.Version(),
		strings.TrimPrefix(output(onNode("")(s.config.Peers)[0], "--version"), "v"), s.versions())
}

// Latencies tells how fast the machine's disk is now.
func (s *Server) Latencies(ctx context.Context) (measure.Latencies, error) {
	conn, err := s.Admin.Acquire(ctx)
	if err != nil {
		return measure.Latencies{}, err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "create table committed (at timestamptz)"); err != nil {
		return measure.Latencies{}, err
	}
	return measure.MeasureLatencies(ctx, conn.Conn(), latencySamples, "insert into committed values (now())")
}

// linked is the version of a module that this program was built with.
func linked(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "unknown"
}

// versions of the peers, as installed.
func (s *Server) versions() string {
	versions := []string{"River " + linked("github.com/riverqueue/river")}
	for _, name := range []string{"graphile-worker", "pg-boss"} {
		version := output(onNode("")(s.config.Peers)[0], "-p", fmt.Sprintf("JSON.parse(require('fs').readFileSync('%s/node_modules/%s/package.json')).version", s.config.Peers, name))
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

// Version is the commit of the sources, and whether they differ from it; that
// results are new does not count. A program that was built here and runs on a
// machine without the sources says the commit that go build wrote into it.
func Version() string {
	commit := output("git", "describe", "--always")
	if commit == "unknown" {
		return built()
	}
	if output("git", "status", "--porcelain", "--", ":/", ":(exclude)RESULTS.*", ":(exclude)NEUTRAL.*") != "" {
		commit += "-dirty"
	}
	return commit
}

// built is the commit that go build wrote into this program, as short as git describe has it.
func built() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, dirty := "unknown", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			commit = setting.Value[:min(len(setting.Value), 7)]
		case setting.Key == "vcs.modified" && setting.Value == "true":
			dirty = "-dirty"
		}
	}
	return commit + dirty
}

// output is what a program prints, or that it is unknown.
func output(name string, args ...string) string {
	content, err := exec.CommandContext(context.Background(), name, args...).Output() // #nosec G204 -- fixed programs
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(content))
}
