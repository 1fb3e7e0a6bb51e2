package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
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
		Volumes []string
	}
}

type manifest struct {
	Kind string
	Spec struct {
		Selector struct {
			Labels map[string]string `yaml:"matchLabels"`
		}
		Template struct {
			Metadata struct{ Labels, Annotations map[string]string }
			Spec     struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Args      []string
					Ports     []containerPort
					Readiness probe `yaml:"readinessProbe"`
					Liveness  probe `yaml:"livenessProbe"`
				}
			}
		}
		Triggers  []struct{ Metadata struct{ Query string } }
		Endpoints []struct{ Port string } `yaml:"podMetricsEndpoints"`
	}
}

type containerPort struct {
	Name string
	Port string `yaml:"containerPort"`
}

// probe is how Kubernetes asks a container.
type probe struct {
	Exec struct{ Command []string }
	HTTP struct{ Path, Port string } `yaml:"httpGet"`
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
		if !strings.HasPrefix(service.Image, "jobq") {
			continue
		}
		all = append(all, deployed{"compose " + name, service.Command, service.Grace})
		if len(service.Health.Test) > 0 && service.Health.Test[1] == "jobq" {
			all = append(all, deployed{"compose, health of " + name, service.Health.Test[2:], 0})
		}
	}
	for _, m := range manifests(t, "../../deploy/kubernetes/jobq.yaml") {
		for _, container := range m.Spec.Template.Spec.Containers {
			grace := time.Duration(m.Spec.Template.Spec.Grace) * time.Second
			all = append(all, deployed{"kubernetes " + m.Kind, container.Args, grace})
			if command := container.Readiness.Exec.Command; len(command) > 0 {
				require.Equal(t, "jobq", command[0])
				all = append(all, deployed{"kubernetes, probe of " + m.Kind, command[1:], 0})
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

// parsed is a command line as the command's own parser reads it.
func parsed(t *testing.T, one deployed) *cobra.Command {
	t.Helper()
	require.NotEmpty(t, one.args, one.where)
	root := newRootCommand(&app{})
	args, err := arguments(root, one.args)
	require.NoError(t, err, one.where)
	command, rest, err := root.Find(args)
	require.NoError(t, err, one.where)
	require.NotEqual(t, root, command, one.where)
	require.NoError(t, command.ParseFlags(rest), one.where)
	require.NoError(t, command.ValidateArgs(command.Flags().Args()), one.where)
	return command
}

// metricsPort is where a command serves its figures: "" for one that ends by itself.
func metricsPort(t *testing.T, one deployed) string {
	t.Helper()
	flag := map[string]string{"worker": "metrics-addr", "janitor": "metrics-addr", "metrics": "metrics-addr"}
	command := parsed(t, one)
	name, runs := flag[command.Name()]
	if !runs {
		return ""
	}
	address, err := command.Flags().GetString(name)
	require.NoError(t, err, one.where)
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err, "%s serves no figures: give it --%s", one.where, name)
	want := "0.0.0.0" // Prometheus reaches it from elsewhere
	if strings.HasSuffix(one.where, ".service") {
		want = "127.0.0.1" // nobody does unless its owner says so
	}
	require.Equal(t, want, host, one.where)
	return port
}

// What deploy/ starts are commands and flags that exist, and whoever stops a worker
// waits until it has drained. Method: the command's own parser reads each line.
func TestDeployedCommands(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for _, one := range commandsOf(t) {
		command := parsed(t, one)
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
	require.Equal(t, map[string]int{"jobq worker": 3, "jobq janitor": 3, "jobq metrics": 3, "jobq migrate up": 2, "jobq stats": 3}, seen)
	settings := unit(t, "../../deploy/systemd/jobq-worker.service")
	require.Equal(t, "mixed", settings["KillMode"], "SIGTERM is for the worker alone")
	require.Equal(t, "continue", settings["OOMPolicy"], "a handler's memory is no reason to stop the worker")
}

// Everything that deploy/ starts and that goes on serves its figures, and Prometheus asks for
// them there: each container of compose.yaml, each pod, and no port twice on one machine.
func TestDeployedMetrics(t *testing.T) {
	t.Parallel()
	ports := map[string]string{}
	for _, one := range commandsOf(t) {
		port := metricsPort(t, one)
		if port == "" {
			continue
		}
		if strings.HasSuffix(one.where, ".service") {
			require.NotContains(t, ports, port, "%s has the port of another unit of the same machine", one.where)
			ports[port] = one.where
			continue
		}
		require.Equal(t, "9400", port, one.where)
	}
	require.Len(t, ports, 3)

	var c compose
	content, err := os.ReadFile("../../deploy/compose.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, &c))
	require.Contains(t, c.Services["prometheus"].Command, "--config.file=/etc/jobq/prometheus.yaml")
	require.Contains(t, c.Services["prometheus"].Volumes, "./prometheus:/etc/jobq:ro")
	var scraped struct {
		Configs []struct {
			Found []struct {
				Port  string
				Names []string
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	content, err = os.ReadFile("../../deploy/prometheus/prometheus.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, &scraped))
	found := scraped.Configs[0].Found[0]
	require.Equal(t, "9400", found.Port)
	var serving []string
	for name, service := range c.Services {
		if strings.HasPrefix(service.Image, "jobq") && metricsPort(t, deployed{name, service.Command, 0}) != "" {
			serving = append(serving, name)
		}
	}
	require.ElementsMatch(t, found.Names, serving)

	pods := 0
	for _, m := range manifests(t, "../../deploy/kubernetes/jobq.yaml") {
		if m.Kind != "Deployment" {
			continue
		}
		pods++
		template, container := m.Spec.Template, m.Spec.Template.Spec.Containers[0]
		where := template.Metadata.Labels["app.kubernetes.io/component"]
		require.Equal(t, template.Metadata.Labels, m.Spec.Selector.Labels, where)
		require.Equal(t, map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9400"}, template.Metadata.Annotations, where)
		require.Equal(t, []containerPort{{"metrics", "9400"}}, container.Ports, where)
		require.Equal(t, struct{ Path, Port string }{"/healthz", "metrics"}, container.Liveness.HTTP, where)
		if where != "janitor" { // whose /readyz says nothing of the database
			require.Equal(t, struct{ Path, Port string }{"/readyz", "metrics"}, container.Readiness.HTTP, where)
		}
	}
	require.Equal(t, 3, pods)
	monitor := manifests(t, "../../deploy/kubernetes/podmonitor.yaml")[0]
	require.Equal(t, map[string]string{"app.kubernetes.io/name": "jobq"}, monitor.Spec.Selector.Labels)
	require.Equal(t, []struct{ Port string }{{"metrics"}}, monitor.Spec.Endpoints)
}

// The Dockerfile copies files that are there and are part of the context, into paths that
// its commands find, and has the targets that compose.yaml builds.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../deploy/Dockerfile")
	require.NoError(t, err)
	file := string(content)
	copied := regexp.MustCompile(`(?m)^COPY (?:--from=(\w+) )?(.+) (\S+)$`).FindAllStringSubmatch(file, -1)
	require.Len(t, copied, strings.Count(file, "\nCOPY "))
	ignored, err := os.ReadFile("../../.dockerignore")
	require.NoError(t, err)
	installed := map[string]string{}
	for _, line := range copied {
		installed[line[3]] = line[2]
		if line[1] != "" {
			require.Contains(t, file, " AS "+line[1]+"\n")
			continue
		}
		for _, name := range strings.Fields(line[2]) {
			_, err := os.Stat(filepath.Join("../..", name))
			require.NoError(t, err)
			require.NotContains(t, strings.Fields(string(ignored)), strings.Split(name, "/")[0])
		}
	}
	require.Contains(t, file, " -o /jobq ./cmd/jobq\n")
	require.Equal(t, "/jobq", installed["/usr/local/bin/jobq"])
	require.NotContains(t, strings.Fields(string(ignored)), ".git", "jobq version reads it")
	// All images start jobq by its name, which the one without a shell finds by PATH alone.
	for _, image := range strings.Split(file, "\nFROM ")[2:] {
		require.Contains(t, image, "ENTRYPOINT [\"jobq\"]")
		require.Contains(t, image, "USER 65532:65532")
		require.Contains(t, image, "COPY --from=build /jobq /usr/local/bin/jobq")
	}
	require.Contains(t, file, "FROM scratch AS jobq\n")
	require.Contains(t, file, "ENV PATH=/usr/local/bin\n")
	module, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module))[1]
	require.Contains(t, file, "FROM golang:"+version+" AS build\n")

	content, err = os.ReadFile("../../deploy/compose.yaml")
	require.NoError(t, err)
	for _, target := range regexp.MustCompile(`target: (\w+)`).FindAllStringSubmatch(string(content), -1) {
		require.Contains(t, file, " AS "+target[1]+"\n")
	}
	manifests, err := os.ReadFile("../../deploy/kubernetes/jobq.yaml")
	require.NoError(t, err)
	for _, text := range []string{string(content), string(manifests)} {
		require.Contains(t, text, "wordcount=python3 /srv/wordcount.py", "the handler that the image has")
	}
	require.Equal(t, "examples/python/wordcount.py", installed["/srv/wordcount.py"])
}

// systemd knows every setting of the units, and their values. Method: systemd-analyze reads
// them, with a program in the place of jobq, which is not installed here.
func TestSystemdUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		pgtest.Missing(t, "systemd", "install systemd (its systemd-analyze reads the units)")
		t.SkipNow()
	}
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	require.NoError(t, err)
	require.Len(t, units, 3)
	folder := t.TempDir()
	arguments := []string{"verify", "--man=no"}
	for _, path := range units {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		file := filepath.Join(folder, filepath.Base(path))
		text := strings.Replace(string(content), "=/usr/local/bin/jobq ", "="+os.Args[0]+" ", 1)
		require.NotEqual(t, string(content), text, path)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		arguments = append(arguments, file)
	}
	out, _ := exec.Command(analyze, arguments...).CombinedOutput() // it may complain of units of this machine, too
	require.NotContains(t, string(out), "jobq-")
	require.NotContains(t, string(out), folder)
	// It complains where there is a reason.
	broken := filepath.Join(folder, "jobq-broken.service")
	require.NoError(t, os.WriteFile(broken, []byte("[Service]\nType=exec\nExecStart=/bin/true\nKilMode=mixed\n"), 0o600))
	out, _ = exec.Command(analyze, "verify", "--man=no", broken).CombinedOutput()
	require.Contains(t, string(out), "jobq-broken.service:4: Unknown key", string(out))
}

// A release's archive has what docs/deploy.md installs from its folder, under those names.
func TestArchive(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../.goreleaser.yaml")
	require.NoError(t, err)
	var release struct {
		Archives []struct {
			Files []struct {
				Source      string `yaml:"src"`
				Destination string `yaml:"dst"`
				StripParent bool   `yaml:"strip_parent"`
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(content, &release))
	archived := []string{"jobq"}
	for _, file := range release.Archives[0].Files {
		if strings.HasPrefix(file.Source, "bin/release/") {
			continue // made by make release-files
		}
		found, err := filepath.Glob("../../" + file.Source)
		require.NoError(t, err)
		require.NotEmpty(t, found, file.Source)
		for _, path := range found {
			name := strings.TrimPrefix(path, "../../")
			if file.StripParent {
				name = filepath.Base(path)
			}
			archived = append(archived, filepath.Join(file.Destination, name))
		}
	}
	page, err := os.ReadFile("../../docs/deploy.md")
	require.NoError(t, err)
	installed := []string{"roles.sql"}
	require.Contains(t, string(page), " -f roles.sql\n")
	for _, line := range regexp.MustCompile(`(?m)^    install -m \d+ (.+?)  +#|^    install -m \d+ (.+)$`).FindAllStringSubmatch(string(page), -1) {
		files := strings.Fields(line[1] + line[2])
		for _, name := range files[:len(files)-1] {
			if files[0] != "-g" && !strings.HasSuffix(name, "environment") { // a reader's own
				installed = append(installed, name)
			}
		}
	}
	require.Len(t, installed, 5, "roles.sql, jobq, two units, and the rules")
	require.Subset(t, archived, installed)
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
