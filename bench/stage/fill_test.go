package stage

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/bench/child"
)

// TestMain lets the test binary be the child processes too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		if err := child.Run(context.Background(), os.Args[2:]); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// Jobs of every kind can be added for every contender that is installed, and are then left to do.
func TestFill(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	config := Config{Peers: "../peers", Fleeting: true}
	if _, err := os.Stat("../peers/node_modules"); err != nil {
		config.Only = "jobq,river,sql" // make bench-peers has not been run
	}
	s, err := Start(ctx, config)
	require.NoError(t, err)
	defer s.Stop(ctx)
	for _, c := range s.Chosen() {
		if !c.Tuned {
			continue
		}
		require.NoError(t, s.With(ctx, c, func(d *Database) error {
			for _, like := range []Jobs{{}, {Bytes: 224}, {Low: true}, {Queue: child.QueueNames(4)[3]}} {
				require.NoError(t, d.AddLike(ctx, like, 5), "%s: %+v", c, like)
			}
			var left int
			require.NoError(t, d.Pool.QueryRow(ctx, d.Left).Scan(&left))
			require.Equal(t, 20, left, c.Name)
			return nil
		}))
	}
}
