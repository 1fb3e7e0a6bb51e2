package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is the user that the server runs as: PostgreSQL refuses root.
type account struct {
	name       string
	credential *syscall.Credential // nil for the user that runs jobq
	uid, gid   int
}

// serverAccount is the user that runs jobq or, for root, the one behind sudo,
// else postgres, else nobody.
func serverAccount() (account, error) {
	if os.Getuid() != 0 {
		current, err := user.Current()
		if err != nil {
			return account{}, err
		}
		return account{name: current.Username, uid: os.Getuid(), gid: os.Getgid()}, nil
	}
	for _, name := range []string{os.Getenv("SUDO_USER"), "postgres", "nobody"} {
		if name == "" || name == "root" {
			continue
		}
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			continue
		}
		return account{
			name: name, uid: int(uid), gid: int(gid),
			credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: false},
		}, nil
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is no other user to run it as (tried SUDO_USER, postgres, nobody)")
}

// own makes a folder that only the account can enter, and its parents.
func (a account) own(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { // #nosec G301 -- the parents must be passable; the folder is closed below
		return err
	}
	if err := os.Chmod(folder, 0o700); err != nil { // #nosec G302 -- a folder
		return err
	}
	if a.credential == nil {
		return nil
	}
	if err := os.Chown(folder, a.uid, a.gid); err != nil {
		return fmt.Errorf("give %s to %s: %w", folder, a.name, err)
	}
	return nil
}
