package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeServer makes a folder with programs that say a version and do nothing.
func fakeServer(t *testing.T, folder, version string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(folder, 0o755))
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s (Fake 1)'\n", version)
	for _, program := range []string{"initdb", "postgres"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, program), []byte(script), 0o755))
	}
	return folder
}

// Goal: the newest server that can be used is found, wherever it is.
func TestFind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	fakeServer(t, at("old/9.6/bin"), "9.6.24")
	fakeServer(t, at("lib/14/bin"), "14.2")
	fakeServer(t, at("lib/15/bin"), "15.9")
	fakeServer(t, at("lib/15/newer"), "15.10")
	fakeServer(t, at("lib/16/bin"), "16beta2")
	require.NoError(t, os.MkdirAll(at("links"), 0o755))
	require.NoError(t, os.Symlink(at("lib/15/newer/postgres"), at("links/postgres")))
	fakeServer(t, at("torn"), "17.1")
	require.NoError(t, os.Remove(at("torn/initdb")))
	fakeServer(t, at("broken"), "18.1")
	require.NoError(t, os.WriteFile(at("broken/postgres"), []byte("#!/bin/sh\nexit 3\n"), 0o755))

	for name, test := range map[string]struct {
		search search
		folder string
		err    string
	}{
		"newest minor, through a link":  {search{path: []string{at("links"), at("lib/14/bin")}, patterns: []string{at("lib/15/b*")}}, "lib/15/newer", ""},
		"newest major":                  {search{path: []string{at("lib/14/bin")}, patterns: []string{at("lib/*/bin")}}, "lib/16/bin", ""},
		"the major of the data":         {search{patterns: []string{at("lib/*/bin")}, major: 14}, "lib/14/bin", ""},
		"unusable ones are passed over": {search{path: []string{at("torn"), at("broken"), at("old/9.6/bin"), at("lib/14/bin")}}, "lib/14/bin", ""},
		"the override alone counts":     {search{override: at("lib/14/bin"), patterns: []string{at("lib/*/bin")}}, "lib/14/bin", ""},
		"a wrong override":              {search{override: at("links"), patterns: []string{at("lib/*/bin")}}, "", "JOBQ_PG_BIN: " + at("links") + " has no initdb"},
		"an override too old":           {search{override: at("old/9.6/bin")}, "", "is PostgreSQL 9.6.24"},
		"nothing":                       {search{path: []string{dir, ""}}, "", "apt-get install postgresql"},
		"nothing usable says why":       {search{path: []string{at("broken")}}, "", "exit status 3"},
		"not the major of the data":     {search{path: []string{at("lib/14/bin")}, major: 15}, "", "PostgreSQL 15 made the data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := test.search.find(t.Context())
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				require.Equal(t, test.search.override == "", errors.Is(err, ErrNoBinaries))
				return
			}
			require.NoError(t, err)
			require.Equal(t, at(test.folder), found.Folder)
			require.NotZero(t, found.Major)
		})
	}
}

// Goal: programs that the server's user cannot run are no candidates.
func TestFindAsOtherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root runs the server as another user")
	}
	account, err := serverAccount()
	require.NoError(t, err)
	closed := fakeServer(t, filepath.Join(t.TempDir(), "bin"), "17.1") // below a folder of root alone
	_, err = search{account: account, path: []string{closed}}.find(t.Context())
	require.ErrorIs(t, err, ErrNoBinaries)
	require.ErrorContains(t, err, "permission denied")
}

// Goal: this machine has a server, and the environment can name it.
func TestFindBinaries(t *testing.T) {
	found, err := FindBinaries(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, found.Major, majorMin)
	t.Setenv("JOBQ_PG_BIN", found.Folder)
	again, err := FindBinaries(t.Context())
	require.NoError(t, err)
	require.Equal(t, found, again)
	t.Setenv("JOBQ_PG_BIN", "/nowhere")
	_, err = Start(t.Context(), Config{})
	require.ErrorContains(t, err, "JOBQ_PG_BIN: /nowhere has no initdb")
}

// Goal: root takes the first user that exists, and never itself.
func TestAccountForRoot(t *testing.T) {
	t.Parallel()
	account, err := accountForRoot("", "root", "no such user", "nobody")
	require.NoError(t, err)
	require.Equal(t, "nobody", account.name)
	require.NotZero(t, account.credential.Uid)
	_, err = accountForRoot("root", "no such user")
	require.ErrorContains(t, err, "PostgreSQL does not run as root")
}
