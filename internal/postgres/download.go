package postgres

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// downloadVersion is the server that is downloaded when none is installed.
const downloadVersion = embedded.V17

// binaries finds the server's programs, or downloads them as the last resort.
func binaries(ctx context.Context) (string, error) {
	folder, err := FindBinaries(ctx)
	if err == nil || os.Getenv("JOBQ_PG_BIN") != "" {
		return folder, err
	}
	cache := "/var/cache"
	if os.Getuid() != 0 { // root's home is closed to the user that the server runs as
		if cache, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("%w (%w)", ErrNoBinaries, err)
		}
	}
	root := filepath.Join(cache, "jobq", "postgres-"+string(downloadVersion))
	if hasServer(filepath.Join(root, "bin")) {
		return filepath.Join(root, "bin"), nil
	}
	downloaded := make(chan error, 1)
	go func() { downloaded <- download(ctx, root) }()
	select {
	case err = <-downloaded:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("%w; its download did not work either: %w", ErrNoBinaries, err)
	}
	return filepath.Join(root, "bin"), nil
}

// download unpacks the programs below root. The library does that only as a
// part of starting a server of its own, which fails as root, for one; what
// counts is whether the programs are there afterwards.
func download(ctx context.Context, root string) error {
	scratch, err := os.MkdirTemp("", "jobq-download-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }() // a temporary folder
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	server := embedded.NewDatabase(embedded.DefaultConfig().Version(downloadVersion).Port(uint32(port)). // #nosec G115 -- a port
														CachePath(filepath.Dir(root)).BinariesPath(root).RuntimePath(filepath.Join(scratch, "run")).
														DataPath(filepath.Join(scratch, "data")).Logger(io.Discard).
														StartParameters(map[string]string{"unix_socket_directories": scratch}))
	startErr := server.Start()
	if startErr == nil {
		if err := server.Stop(); err != nil {
			return err
		}
	}
	if hasServer(filepath.Join(root, "bin")) {
		return nil
	}
	return startErr
}
