package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// timeToStore is what docs/deploy.md says to leave after the drain timeout: the
// default grace of a kind is 3 s, and results are stored in 10 s.
const timeToStore = 13 * time.Second

// deployed is a command line of one of the files in deploy/.
type deployed struct {
	where string
	args  []string
	grace time.Duration // from SIGTERM to SIGKILL; 0 where the file does not say
}

// compose and manifest have what the tests read; further members are the file's own.
type compose struct {
	Services map[string]struct {
		Image   string
		Command []string
		Grace   time.Duration           `yaml:"stop_grace_period"`
		Health  struct{ Test []string } `yaml:"healthcheck"`
	}
}

type manifest struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Args           []string
					ReadinessProbe struct{ Exec struct{ Command []string } } `yaml:"readinessProbe"`
				}
			}
		}
		Triggers []struct{ Metadata struct{ Query string } }
	}
}

func manifests(t *testing.T, path string) (all []manifest) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var one manifest
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, path)
		all = append(all, one)
	}
}

// commandsOf is every command of jobq in a compose file, manifests and systemd units.
func commandsOf(t *testing.T) (all []deployed) {
	t.Helper()
	content, err := os.ReadFile("../../deploy/compose.yaml")
	require.NoError(t, err)
	var c compose
	require.NoError(t, yaml.Unmarshal(content, &c))
	for name, service := range c.Services {
		if service.Image == "postgres:17" {
			continue
		}
		all = append(all, deployed{"compose " + name, service.Command, service.Grace})
		if len(service.Health.Test) > 0 {
			require.Equal(t, []string{"CMD", "jobq"}, service.Health.Test[:2], name)
			all = append(all, deployed{"compose, health of " + name, service.Health.Test[2:], 0})
		}
	}
	for _, m := range manifests(t, "../../deploy/kubernetes/jobq.yaml") {
		for _, container := range m.Spec.Template.Spec.Containers {
			grace := time.Duration(m.Spec.Template.Spec.Grace) * time.Second
			all = append(all, deployed{"kubernetes " + m.Kind, container.Args, grace})
			if probe := container.ReadinessProbe.Exec.Command; len(probe) > 0 {
				require.Equal(t, "jobq", probe[0])
				all = append(all, deployed{"kubernetes, probe of " + m.Kind, probe[1:], 0})
			}
		}
	}
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	require.NoError(t, err)
	for _, path := range units {
		settings := unit(t, path)
		words := strings.Fields(settings["ExecStart"])
		require.Equal(t, "/usr/local/bin/jobq", words[0], path)
		seconds, _ := strconv.Atoi(settings["TimeoutStopSec"]) // only workers have one
		all = append(all, deployed{path, words[1:], time.Duration(seconds) * time.Second})
	}
	return all
}

// unit reads the settings of a systemd unit, each of which must be there once at most.
func unit(t *testing.T, path string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	settings := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^(\w+)=(.*)$`).FindAllStringSubmatch(string(content), -1) {
		require.NotContains(t, settings, line[1], path)
		settings[line[1]] = line[2]
	}
	return settings
}

// What deploy/ starts are commands and flags that exist, and whoever stops a worker
// waits until it has drained. Method: the command's own parser reads each line.
func TestDeployedCommands(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for _, one := range commandsOf(t) {
		require.NotEmpty(t, one.args, one.where)
		root := newRootCommand(&app{})
		args, err := arguments(root, one.args)
		require.NoError(t, err, one.where)
		command, rest, err := root.Find(args)
		require.NoError(t, err, one.where)
		require.NotEqual(t, root, command, one.where)
		require.NoError(t, command.ParseFlags(rest), one.where)
		require.NoError(t, command.ValidateArgs(command.Flags().Args()), one.where)
		seen[command.CommandPath()]++
		if command.Name() != "worker" {
			continue
		}
		drain, err := command.Flags().GetDuration("drain-timeout")
		if err != nil {
			drain = worker.DefaultDrainTimeout
		}
		require.GreaterOrEqual(t, one.grace, drain+timeToStore, "%s kills the worker before it has drained", one.where)
	}
	require.Equal(t, map[string]int{"jobq worker": 3, "jobq janitor": 3, "jobq migrate up": 2, "jobq stats": 4}, seen)
	settings := unit(t, "../../deploy/systemd/jobq-worker.service")
	require.Equal(t, "mixed", settings["KillMode"], "SIGTERM is for the worker alone")
	require.Equal(t, "continue", settings["OOMPolicy"], "a handler's memory is no reason to stop the worker")
}

// KEDA's query counts the jobs of the queue that wait and run, not those of other
// queues or of later, and reads a bounded number of them.
func TestKEDAQuery(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	all := manifests(t, "../../deploy/kubernetes/keda.yaml")
	sql := all[len(all)-1].Spec.Triggers[0].Metadata.Query
	require.Equal(t, 0, query[int](t, pool, sql))
	_, err := pool.Exec(ctx, `select jobq.enqueue('wait') from generate_series(1, 3);
		select jobq.enqueue('other', queue => 'other');
		select jobq.enqueue('later', run_at => now() + interval '1 hour')`)
	require.NoError(t, err)
	require.NoError(t, pgtest.MakeRunning(ctx, pool, query[int64](t, pool, "select jobq.enqueue('run')")))
	require.Equal(t, 4, query[int](t, pool, sql))
	_, err = pool.Exec(ctx, "select jobq.enqueue('wait') from generate_series(1, 1500)")
	require.NoError(t, err)
	require.Equal(t, 1001, query[int](t, pool, sql))
}
