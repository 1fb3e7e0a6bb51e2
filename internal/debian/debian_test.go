package debian

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// program writes a shell script into a folder of programs.
func program(t *testing.T, folder, name, script string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script), 0o755))
}

// Goal: a package and the libraries that it needs are unpacked, and nothing else; its programs find the libraries.
// Method: an apt-get and a dpkg that know two programs and a library.
func TestUnpack(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	program(t, bin, "apt-get", `case "$*" in
*--simulate*) printf 'Inst libx1 (1)\nInst perl (5)\nInst tool (2)\nConf tool (2)\n' ;;
*download*) for name; do case $name in libx1|tool|perl) : > "$name.deb" ;; esac; done ;;
esac`)
	program(t, bin, "dpkg", `mkdir -p "$3/usr/lib/x86_64-linux-gnu" "$3/usr/bin"
case $2 in
*tool.deb) printf '#!/bin/sh\necho "$LD_LIBRARY_PATH $*"' > "$3/usr/bin/tool"; chmod +x "$3/usr/bin/tool" ;;
*) : > "$3/usr/lib/x86_64-linux-gnu/$(basename "$2" .deb).so" ;;
esac`)
	folder := filepath.Join(t.TempDir(), "unpacked")
	u, err := NewUnpacker(t.Context(), folder)
	require.NoError(t, err)
	require.NoError(t, u.Unpack(t.Context(), "tool"))
	require.NoError(t, u.Wrap("usr/bin/*"))
	require.ErrorContains(t, u.Wrap("usr/sbin/none"), "the packages have no usr/sbin/none")
	require.NoError(t, u.Close())
	require.NoDirExists(t, u.apt)
	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.Rename(folder, moved))
	out, err := exec.CommandContext(t.Context(), filepath.Join(moved, "bin", "tool"), "a b", "c").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), filepath.Join(moved, "usr/lib/x86_64-linux-gnu"))
	require.Contains(t, string(out), " a b c\n")
	require.FileExists(t, filepath.Join(moved, "usr/lib/x86_64-linux-gnu/libx1.so"))
	require.NoFileExists(t, filepath.Join(moved, "usr/lib/x86_64-linux-gnu/perl.so"))
}

// Goal: what does not work says so in one line, and leaves no lists.
func TestUnpackFails(t *testing.T) {
	bin, temporary := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("PATH", bin)
	_, err := NewUnpacker(t.Context(), t.TempDir())
	require.ErrorIs(t, err, ErrNotDebian)
	program(t, bin, "dpkg", "exit 0")
	program(t, bin, "apt-get", "echo 'E: no network' >&2; echo more >&2; exit 100")
	_, err = NewUnpacker(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "apt-get: exit status 100: E: no network")
	require.NotContains(t, err.Error(), "more")
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}
