// Testall runs all tests of jobq, on a machine that need have nothing but Go:
//
//	go run ./internal/testall              # all of them
//	go run ./internal/testall ./worker     # those of a package; what follows is passed to go test
//	go run ./internal/testall -setup       # run none; print what a shell is to set, and what was left out
//
// It gets the programs that tests need: it installs packages of Debian where it is root, and else unpacks
// them in bin/debian, and installs nothing. What cannot be had is left out, with one line that says what is not
// checked. What is here is in JOBQ_TEST_REQUIRE: a test that does not find it fails. CI runs the same.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"github.com/jobq-dev/jobq/internal/postgres"
)

// What go test gets. The time is of the slowest package, on a busy machine.
const (
	requireVariable  = "JOBQ_TEST_REQUIRE"
	postgresVariable = "JOBQ_PG_BIN"
	testTimeout      = "40m"
)

func main() {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // go test gets it too, and ends
	code, err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testall:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (code int, err error) {
	if _, err := os.Stat("go.mod"); err != nil {
		return 0, errors.New("run it in the folder that has go.mod")
	}
	m := newMachine(os.Stderr)
	defer func() { err = errors.Join(err, m.close()) }()
	if err := m.providePostgres(ctx); err != nil {
		return 0, err
	}
	for _, need := range needs() {
		m.provide(ctx, need)
	}
	if len(args) == 1 && args[0] == "-setup" {
		m.writeSetup(os.Stdout)
		return 0, nil
	}
	if len(args) == 0 {
		args = []string{"./..."}
	}
	code, err = m.test(ctx, args)
	for _, line := range m.leftOut {
		fmt.Fprintln(os.Stderr, line)
	}
	return code, err
}

// providePostgres makes sure that there is a server: nothing can be tested without one.
func (m *machine) providePostgres(ctx context.Context) error {
	if found, err := postgres.FindBinaries(ctx); err == nil {
		if home, err := os.UserHomeDir(); err == nil && strings.HasPrefix(found.Folder, home) {
			return os.Setenv(postgresVariable, found.Folder)
		}
		return nil
	}
	if m.root {
		m.say("installing PostgreSQL")
		if err := m.install(ctx, "postgresql"); err != nil {
			m.say("not installed: " + err.Error())
		}
	}
	found, err := postgres.Provide(ctx, slog.New(slog.NewTextHandler(m.log, nil)))
	if err != nil {
		return err
	}
	return os.Setenv(postgresVariable, found.Folder) // tests with a home of their own do not find a download
}

// test runs go test, and returns its exit code.
func (m *machine) test(ctx context.Context, args []string) (int, error) {
	all := []string{"test", "-timeout", testTimeout}
	if m.here["race"] {
		all = append(all, "-race")
	}
	command := exec.CommandContext(ctx, "go", append(all, args...)...) // #nosec G204 G702 -- what the developer says
	command.Stdin, command.Stdout, command.Stderr, command.Env = os.Stdin, os.Stdout, os.Stderr, m.environment()
	err := command.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// environment is what tests run with: that of this process without databases of the developer's.
func (m *machine) environment() []string {
	var env []string
	for _, each := range os.Environ() {
		switch name, _, _ := strings.Cut(each, "="); name {
		case "DATABASE_URL", "JOBQ_DATABASE_URL", "JOBQ_LISTEN_URL", requireVariable:
		default:
			env = append(env, each)
		}
	}
	return append(env, requireVariable+"="+m.required())
}

// writeSetup writes the commands with which a shell sets what this process has found.
func (m *machine) writeSetup(out io.Writer) {
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
	if folder := os.Getenv(postgresVariable); folder != "" {
		fmt.Fprintf(out, "export %s=%s\n", postgresVariable, quote(folder))
	}
	fmt.Fprintf(out, "export PATH=%s\nexport %s=%s\nunset DATABASE_URL JOBQ_DATABASE_URL JOBQ_LISTEN_URL\n", quote(os.Getenv("PATH")), requireVariable, quote(m.required()))
	for _, line := range m.leftOut {
		fmt.Fprintln(out, "#", line)
	}
}
