// Package debian gets programs from Debian's packages without installing them: for a user
// who is not root, and for a command that leaves the machine as it is. apt-get checks the
// signatures, as for an installation.
package debian

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ErrNotDebian means that this machine has no apt-get and dpkg.
var ErrNotDebian = errors.New("this machine has no apt-get and dpkg")

// Unpacker unpacks packages into a folder. Its own lists of packages are in a folder of their own,
// since only root may bring the machine's up to date.
type Unpacker struct {
	folder string   // what is unpacked
	apt    string   // lists of packages
	args   []string // of apt-get
}

// NewUnpacker brings lists of packages up to date. Close removes them, and leaves what was unpacked.
func NewUnpacker(ctx context.Context, folder string) (*Unpacker, error) {
	for _, program := range []string{"apt-get", "dpkg"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, ErrNotDebian
		}
	}
	apt, err := os.MkdirTemp("", "jobq-apt")
	if err != nil {
		return nil, err
	}
	u := &Unpacker{folder: folder, apt: apt, args: []string{
		"-qq", "-o", "Dir::State::Lists=" + filepath.Join(apt, "lists"), "-o", "Dir::Cache=" + filepath.Join(apt, "cache"),
		"-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20",
	}}
	err = errors.Join(os.MkdirAll(filepath.Join(apt, "lists", "partial"), 0o700), os.MkdirAll(filepath.Join(apt, "cache", "archives", "partial"), 0o700), os.MkdirAll(folder, 0o755)) // #nosec G301 -- other users run servers
	if err == nil {
		_, err = u.run(ctx, apt, "apt-get", append(u.args, "update", "-o", "APT::Update::Error-Mode=any")...)
	}
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// Close removes the lists of packages.
func (u *Unpacker) Close() error { return os.RemoveAll(u.apt) }

// installed matches a line of a simulated installation: Inst libpq5 (15.13-0+deb12u1 Debian:12.11/stable [amd64]).
var installed = regexp.MustCompile(`(?m)^Inst (\S+) `)

// Lookup returns the packages that an installation of the package would add, the package itself included.
func (u *Unpacker) Lookup(ctx context.Context, names ...string) (packages []string, err error) {
	args := append(slices.Clone(u.args), "install", "--simulate", "--no-install-recommends", "--reinstall")
	out, err := u.run(ctx, u.apt, "apt-get", append(args, names...)...)
	if err != nil {
		return nil, err
	}
	for _, match := range installed.FindAllStringSubmatch(out, -1) {
		packages = append(packages, match[1])
	}
	return packages, nil
}

// Unpack downloads packages, and those libraries among what they depend on that are not installed,
// and unpacks them. Wrap makes their programs usable.
func (u *Unpacker) Unpack(ctx context.Context, names ...string) error {
	packages, err := u.Lookup(ctx, names...)
	if err != nil {
		return err
	}
	packages = slices.DeleteFunc(packages, func(each string) bool { return !slices.Contains(names, each) && !strings.HasPrefix(each, "lib") })
	downloads, err := os.MkdirTemp(u.apt, "packages")
	if err != nil {
		return err
	}
	if _, err := u.run(ctx, downloads, "apt-get", append(append(slices.Clone(u.args), "download"), packages...)...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(downloads, "*.deb"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("apt-get download %s: no packages came", strings.Join(packages, " "))
	}
	for _, file := range files {
		if _, err := u.run(ctx, "/", "dpkg", "-x", file, u.folder); err != nil {
			return err
		}
	}
	return os.RemoveAll(downloads)
}

// wrapper runs a program that was unpacked with the libraries that were unpacked beside it. It finds them
// by its own place, so that the folder can be moved as a whole.
const wrapper = `#!/bin/sh
root=$(cd "$(dirname "$0")/.." && pwd)
for folder in "$root"/usr/lib/*-linux-gnu* "$root"/lib/*-linux-gnu*; do
  [ ! -d "$folder" ] || LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
exec "$root/%s" "$@"
`

// Wrap makes a script in the folder's bin for each program that matches a pattern below the folder, such as
// usr/bin/tmux.
func (u *Unpacker) Wrap(patterns ...string) error {
	bin := filepath.Join(u.folder, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil { // #nosec G301 -- other users run servers
		return err
	}
	for _, pattern := range patterns {
		programs, err := fs.Glob(os.DirFS(u.folder), pattern)
		if err != nil {
			return err
		}
		if len(programs) == 0 {
			return fmt.Errorf("the packages have no %s", pattern)
		}
		for _, program := range programs {
			script := []byte(fmt.Sprintf(wrapper, program))
			if err := os.WriteFile(filepath.Join(bin, filepath.Base(program)), script, 0o755); err != nil { // #nosec G306 -- a program
				return err
			}
		}
	}
	return nil
}

func (u *Unpacker) run(ctx context.Context, folder, program string, args ...string) (out string, err error) {
	command := exec.CommandContext(ctx, program, args...) // #nosec G204 -- apt-get or dpkg
	command.Dir, command.Env = folder, append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var said strings.Builder
	command.Stderr = &said
	content, err := command.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return "", fmt.Errorf("%s: %w: %s", program, err, lines[0])
	}
	return string(content), nil
}
