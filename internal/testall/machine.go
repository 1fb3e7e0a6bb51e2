package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jobq-dev/jobq/internal/debian"
)

// machine is what is known of the one that runs the tests.
type machine struct {
	log      io.Writer
	root     bool
	here     map[string]bool // by the name of a need
	leftOut  []string        // a line for each need that is not here
	updated  bool            // the machine's lists of packages are up to date
	folder   string          // where packages are unpacked
	unpacker *debian.Unpacker
	// unpackErr says why packages cannot be unpacked.
	unpackErr error
}

func newMachine(log io.Writer) *machine {
	m := &machine{log: log, root: os.Getuid() == 0, here: make(map[string]bool)}
	m.folder, m.unpackErr = filepath.Abs(filepath.Join("bin", "debian"))
	// What was unpacked is found by all tests; what the machine has of its own comes first.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:"+filepath.Join(m.folder, "bin")); err != nil {
		m.say(err.Error())
	}
	return m
}

func (m *machine) close() error {
	if m.unpacker == nil {
		return nil
	}
	return m.unpacker.Close()
}

func (m *machine) say(line string) { fmt.Fprintln(m.log, line) }

// required is the list for JOBQ_TEST_REQUIRE.
func (m *machine) required() string {
	var names []string
	for _, each := range needs() {
		if m.here[each.name] {
			names = append(names, each.name)
		}
	}
	return strings.Join(names, " ")
}

// provide looks for what tests need, gets it if it is not here, and notes it if it cannot be had.
func (m *machine) provide(ctx context.Context, n need) {
	reason := error(nil)
	if !n.isHere(ctx) {
		m.say("getting " + n.name)
		reason = m.get(ctx, n)
	}
	if m.here[n.name] = n.isHere(ctx); m.here[n.name] {
		return
	}
	line := fmt.Sprintf("NOT CHECKED: %s (%s is not here and cannot be had", n.purpose, n.name)
	if reason != nil {
		text, _, _ := strings.Cut(reason.Error(), "\n")
		line += ": " + text
	}
	m.leftOut = append(m.leftOut, line+")")
	m.say(m.leftOut[len(m.leftOut)-1])
}

func (m *machine) get(ctx context.Context, n need) error {
	switch {
	case n.npm != "":
		return m.run(ctx, "npm", "--prefix", n.npm, "ci", "--silent", "--no-audit", "--no-fund")
	case m.root && !n.neverInstall:
		return m.install(ctx, n.packages...)
	case len(n.programs) > 0:
		return m.unpack(ctx, n)
	}
	return fmt.Errorf("only root can install %s", strings.Join(n.packages, " "))
}

// install installs packages of Debian.
func (m *machine) install(ctx context.Context, packages ...string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return debian.ErrNotDebian
	}
	if !m.updated {
		if err := m.run(ctx, "apt-get", "update", "-qq"); err != nil {
			return err
		}
		m.updated = true
	}
	return m.run(ctx, "apt-get", append([]string{"install", "-y", "-qq", "--no-install-recommends"}, packages...)...)
}

// unpack gets the programs of packages of Debian without installing them.
func (m *machine) unpack(ctx context.Context, n need) error {
	if m.unpackErr != nil {
		return m.unpackErr
	}
	if m.unpacker == nil {
		if m.unpacker, m.unpackErr = debian.NewUnpacker(ctx, m.folder); m.unpackErr != nil {
			m.unpacker = nil
			return m.unpackErr
		}
	}
	names := n.packages
	if n.depends != "" { // such as postgresql-client, which has nothing but a dependency on postgresql-client-15
		all, err := m.unpacker.Lookup(ctx, n.packages...)
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, n.depends) })
	}
	if err := m.unpacker.Unpack(ctx, names...); err != nil {
		return err
	}
	return m.unpacker.Wrap(n.programs...)
}

// run runs a program that gets something. Its error is the first line that it has written.
func (m *machine) run(ctx context.Context, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...) // #nosec G204 -- apt-get or npm
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := command.CombinedOutput()
	if err == nil || errors.Is(err, exec.ErrNotFound) {
		return err
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "E:") || strings.Contains(line, "ERR") {
			return fmt.Errorf("%s: %w: %s", program, err, line)
		}
	}
	return fmt.Errorf("%s: %w", program, err)
}
