// Package examples runs the examples as a reader would.
package examples

import (
	"cmp"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Each example runs to its end and says what it should.
func TestExamples(t *testing.T) {
	t.Parallel()
	binaries := build(t)
	for name, want := range map[string][]string{
		"quickstart":    {"send the receipt of order 7, once for job 1", "completed  default  send_receipt"},
		"start":         {"hello, Dora (job ", "hello, Emil (job ", "is failed: args have no name", "exit code 7"},
		"sql":           {"9   completed  default  greet"},
		"gotransaction": {"charged 20 orders, each once"},
		"gosql":         {"sent 5 receipts, each once"},
		"python":        {`"be": 2`, "attempt 2 goes on at word 3", "something broke", "exit code 65: args have no text"},
		"shell":         {"go on after 3 files", "killed by SIGKILL", `{"files": 6, "attempts": 2}`},
		"ruby":          {`"be":2`, "exit code 65: args have no text", "exit code of jobq: 7"},
		"java":          {`"be":2`, "exit code 65: text must be words of the letters a to z", "exit code of jobq: 7"},
		"stream-python": {`{"score": -2}`, "args have no text", "501"},
		"pytest":        {"2 passed"},
		"node":          {"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", `{"charged": 12}`, "snoozed after", "HTTP 400: args have no amount"},
		"steps":         {"order done in attempt 5: receipt-1", `shipped for {"by": "ann"}`, "charged 1 time, shipped 1 time"},
		"spawn":         {`{"words":600}`, "all pages  awaited", "pages: 3"},
		"order":         {"charge order 7: 4200 cents, requests: 1", "mail shipped order 7: in parcel RB42, requests: 1", "mail review order 7", "mail declined order 8: the card was not accepted, requests: 1", "lamps left: 9"},
		"wait":          {" words in ", " files", "is failed: exit code", "exit code 7"},
		"graph":         {"words: ", "completed  graph  add    ", " is cancelled: job ", ", for which it waited, has failed", "exit code 8"},
		"flow":          {"that of globex began as number ", "the schedule has added a statement", "key_limit         1\n", "rate              20/s\n", "burst             2\n", "partition key  acme", "source         shop"},
		"crashtest": {
			"twice    1    1  2        1        after the effect  completed", "jobs with more than one effect: 2; completed without an effect: 0; not completed: 0",
			"the mended worker:\n", "2 jobs of kind charge, 2 killed between effect and completion, 0 random kills\nok: each job had its effect once",
		},
		"archives": {"image.tar.xz", "text.tar.xz", "exit code 65: ", "broken.tar.gz: not in gzip format"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if language, ok := written[name]; ok {
				language.need(t)
			}
			out := run(t, binaries, name, nil)
			for _, text := range want {
				require.Contains(t, out, text)
			}
		})
	}
}

// language is what an example needs besides jobq and a shell: a language without a driver, or a program.
type language struct {
	name, check string
	install     string // "" for that of its driver
}

var (
	python  = language{name: "python", check: "python3 --version"}
	written = map[string]language{
		"python": python, "stream-python": python, "node": {name: "node", check: "node --version"}, "ruby": {name: "ruby", check: "ruby --version"},
		"java": {name: "java", check: jdk}, "pytest": {name: "pytest", check: pytest, install: "apt-get install python3-pytest python3-psycopg"}, "archives": {name: "xz", check: "xz --version", install: "apt-get install xz-utils"},
	}
)

// pytest succeeds where a Python has it, and the driver. The folder pytest of the examples has no fixture.
const pytest = "python3 -c 'import psycopg; from pytest import fixture' || /usr/bin/python3 -c 'import psycopg; from pytest import fixture'"

// jdk succeeds where Java can run a source file, which a JRE cannot.
const jdk = "java --list-modules | grep -q '^jdk.compiler'"

// need skips a test where a language is missing.
func (l language) need(t *testing.T) {
	t.Helper()
	if exec.Command("sh", "-c", l.check).Run() != nil { // #nosec G204 -- of the table above
		pgtest.Missing(t, l.name, cmp.Or(l.install, drivers[l.name].install))
		t.SkipNow()
	}
}

// build makes jobq, and returns the folder that it is in.
func build(t *testing.T) (binaries string) {
	t.Helper()
	binaries = t.TempDir()
	out, err := exec.Command("go", "build", "-o", binaries, "../cmd/jobq").CombinedOutput()
	require.NoError(t, err, string(out))
	return binaries
}

// run runs an example on a database of its own, and returns what it has written.
func run(t *testing.T, binaries, name string, environ []string, args ...string) string {
	t.Helper()
	return runAt(t, pgtest.URL(t), binaries, name, environ, args...)
}

// runAt is run on a database that is there.
func runAt(t *testing.T, databaseURL, binaries, name string, environ []string, args ...string) string {
	t.Helper()
	command := exec.Command(filepath.Join(name, "run.sh"), args...)
	command.Env = append(append(os.Environ(), environ...), "DATABASE_URL="+databaseURL, "PATH="+binaries+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// driver is what a language needs to talk to PostgreSQL.
type driver struct {
	programs []string // of which one has it
	check    []string // the arguments with which it says so
	install  string
}

var drivers = map[string]driver{
	"shell":  {[]string{"sh"}, []string{"-c", "psql --version"}, "apt-get install postgresql-client"},
	"python": {[]string{"python3", "/usr/bin/python3"}, []string{"-c", "import psycopg"}, "apt-get install python3-psycopg"},
	"node":   {[]string{"node"}, []string{"-e", "require('pg')"}, "npm --prefix examples/complete ci"},
	"ruby":   {[]string{"ruby"}, []string{"-e", "require 'pg'"}, "apt-get install ruby-pg"},
	"java":   {[]string{"sh"}, []string{"-c", jdk + " && java --dry-run -cp " + jdbc + " org.postgresql.util.PGJDBCMain"}, "apt-get install default-jdk-headless libpostgresql-jdbc-java"},
}

// jdbc is the driver for Java, where Debian has it.
const jdbc = "/usr/share/java/postgresql.jar"

// runIn runs an example for one language, with what its programs need, and returns what
// it has written.
func runIn(t *testing.T, binaries, name, language string) string {
	t.Helper()
	d := drivers[language]
	program := ""
	for _, candidate := range d.programs {
		look := exec.Command(candidate, d.check...) // #nosec G204 -- of the table above
		look.Dir = "complete"
		if program == "" && look.Run() == nil {
			program = candidate
		}
	}
	if program == "" {
		pgtest.Missing(t, language, d.install)
		t.SkipNow()
	}
	switch language {
	case "python":
		return run(t, binaries, name, []string{"PYTHON=" + program}, language)
	case "java": // speaks TCP only
		server := pgtest.TCPServer(t).URL("postgres")
		require.NoError(t, pgtest.Migrate(t.Context(), server, "jobq"))
		address, err := url.Parse(server)
		require.NoError(t, err)
		password, _ := address.User.Password()
		query := url.Values{"user": {address.User.Username()}, "password": {password}}
		return runAt(t, server, binaries, name, []string{"JDBC_URL=jdbc:postgresql://" + address.Host + address.Path + "?" + query.Encode(), "CLASSPATH=" + jdbc}, language)
	}
	return run(t, binaries, name, nil, language)
}

// A program in each language charges each customer once, and has the job completed, also
// when it is killed before or after its commit.
func TestCompleteInEachLanguage(t *testing.T) {
	t.Parallel()
	binaries := build(t)
	for language := range drivers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, runIn(t, binaries, "complete", language), language+": 3 jobs completed, 3 payments for 3 jobs")
		})
	}
}

// A program in each language waits for jobs: it gets the result of one that completes, and
// says how the others end, or that one has not ended in time. That of the first is notified
// to those that can listen: they look once while it runs, and would look again after an hour.
func TestWaitInEachLanguage(t *testing.T) {
	t.Parallel()
	binaries := build(t)
	for language := range drivers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			require.Regexp(t, `(?s)^`+language+`:(?:\nnote: no worker has ever had queue images)?
job \d+: \{"width": ?640\}
job \d+ is failed:? exit code 65: no such image
.*job \d+ is cancelled.*
there is no job 4711
job \d+ has not ended in 1(\.0)? s: it is scheduled
$`, runIn(t, binaries, "results", language))
		})
	}
}

// A program in each language adds one job, many, at most one of a key, and one in a
// transaction of its own: that of the transaction which was rolled back is not there.
func TestProduceInEachLanguage(t *testing.T) {
	t.Parallel()
	binaries := build(t)
	for language := range drivers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, runIn(t, binaries, "languages", language), language+": jobs a.png b.png c.png d.png e.png, pictures 1\n")
		})
	}
}
