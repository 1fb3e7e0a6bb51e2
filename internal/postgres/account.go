package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is the user that the server runs as.
type account struct {
	name       string
	uid, gid   int
	credential *syscall.Credential // nil for the user that runs jobq
}

// serverAccount is the user that runs jobq or, for root, the first to exist of
// the one behind sudo, postgres, and nobody.
func serverAccount() (account, error) {
	uid := os.Getuid()
	if uid != 0 {
		return account{name: "user " + strconv.Itoa(uid), uid: uid, gid: os.Getgid()}, nil
	}
	return accountForRoot(os.Getenv("SUDO_USER"), "postgres", "nobody")
}

func accountForRoot(names ...string) (account, error) {
	for _, name := range names {
		if name == "" || name == "root" {
			continue
		}
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 31)
		if err != nil || uid == 0 {
			continue
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 31)
		if err != nil {
			continue
		}
		return account{
			name: name, uid: int(uid), gid: int(gid),
			// No supplementary groups: root's own must not stay.
			credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
		}, nil
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is no other user to run it as (tried SUDO_USER, postgres, nobody)")
}

// give makes the account the owner of a file or folder; a symbolic link is not
// followed, since the folders belong to a user whom root need not trust.
func (a account) give(path string) error {
	if a.credential == nil {
		return nil
	}
	if err := os.Lchown(path, a.uid, a.gid); err != nil {
		return fmt.Errorf("gift of %s to %s: %w", path, a.name, err)
	}
	return nil
}

// enters says whether the account can work in a folder, by trying: the modes
// of all folders above count, and access lists do too.
func (a account) enters(ctx context.Context, folder string) error {
	if a.credential == nil {
		return nil
	}
	command := exec.CommandContext(ctx, "/bin/sh", "-c", `cd -- "$1" && test -w .`, "sh", folder) // #nosec G204 -- the program is constant
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	if err := command.Run(); err != nil {
		return fmt.Errorf("the server runs as %s, who cannot use %s: choose a folder that this user can reach (%w)", a.name, folder, err)
	}
	return nil
}
