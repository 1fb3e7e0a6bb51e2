package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
)

// A dry run ends with what an operator has to know: whether the programs of today go on.
func TestWhoGoesOn(t *testing.T) {
	t.Parallel()
	at := func(version, compatibleFrom int) migrate.Version {
		return migrate.Version{Version: version, CompatibleFrom: compatibleFrom}
	}
	require.Equal(t, "there are no tables yet", whoGoesOn([]migrate.Version{at(1, 1), at(2, 1)}))
	require.Equal(t, "programs that know version 10 go on: migrate while they work", whoGoesOn([]migrate.Version{at(11, 10), at(12, 9)}))
	require.Equal(t, "programs must know version 11: stop workers and janitors of earlier ones first", whoGoesOn([]migrate.Version{at(11, 11), at(12, 10)}))

	out, _, code := invoke(t, "", "migrate", "up", "--dry-run", "--database-url", pgtest.EmptyURL(t))
	require.Zero(t, code)
	require.Contains(t, out, "would do 001 tables")
	require.Contains(t, out, "there are no tables yet")
}
