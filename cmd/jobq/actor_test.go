package main

import (
	"os"
	"os/user"
	"testing"

	"github.com/stretchr/testify/require"
)

// The audit names who acts: as JOBQ_ACTOR says, or as the environment or the accounts of the machine know them. In a
// container without all of these, it says that it has a number only.
func TestWhoActs(t *testing.T) {
	account, err := user.Current()
	require.NoError(t, err)
	hostname, err := os.Hostname()
	require.NoError(t, err)
	for _, test := range []struct{ jobqActor, user, logname, want string }{
		{"deploy of billing", "ana", "", "deploy of billing"},
		{"", "ana", "ben", "ana@" + hostname},
		{"", "", "ben", "ben@" + hostname},
		{"", "", "", account.Username + "@" + hostname},
	} {
		t.Setenv("JOBQ_ACTOR", test.jobqActor)
		t.Setenv("USER", test.user)
		t.Setenv("LOGNAME", test.logname)
		require.Equal(t, test.want, userAtHost())
	}
	require.Equal(t, "root", nameOf("0"))
	require.Equal(t, "uid 4294967000", nameOf("4294967000"))
}
