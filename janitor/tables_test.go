package janitor_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/sql/migrations"
)

// A janitor leads beside tables of a later jobq that are compatible with it. When a
// migration ends that, Run ends, in either mode, and says why.
func TestTablesOfALaterVersion(t *testing.T) {
	t.Parallel()
	for _, mode := range []janitor.Mode{janitor.ModeLeader, janitor.ModeAny} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			latest := migrations.Latest()
			const migrated = "insert into jobq.jobq_migration (version, compatible_from) values ($1, $2)"
			f.exec(migrated, latest+1, latest)
			j, err := janitor.New(f.client, &janitor.Config{Mode: mode, ScanInterval: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(f.log, nil))})
			require.NoError(t, err)
			janitor.LookAtTablesEvery(10 * time.Millisecond)(j)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- j.Run(ctx) }()
			f.scheduled(1, "1 second")
			f.eventually("select count(*) from jobq.job where state = 'available'", 1)
			require.Empty(t, ended, "the janitor has ended")

			f.exec(migrated, latest+2, latest+2)
			select {
			case err := <-ended:
				require.ErrorIs(t, err, jobq.ErrNewerSchema)
			case <-time.After(patience):
				t.Fatal("the janitor goes on beside tables with which it does not work")
			}
			require.Contains(t, f.log.String(), "this janitor no longer works with them")
		})
	}
}
