package pgtest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// requireVariable names, separated by blanks, what this machine must have for the tests.
const requireVariable = "JOBQ_TEST_REQUIRE"

// Missing says that this machine lacks what a test needs, such as "ruby", and how to
// install it. The caller then leaves out what needs it. Where JOBQ_TEST_REQUIRE has the
// name, the test fails instead.
func Missing(tb testing.TB, name, install string) {
	tb.Helper()
	if slices.Contains(strings.Fields(os.Getenv(requireVariable)), name) {
		tb.Fatalf("%s has %q, which is missing here: %s", requireVariable, name, install)
	}
	tb.Logf("NOT CHECKED: %s is missing here: %s", name, install)
}
