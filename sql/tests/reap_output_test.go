package tests

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a lost run has written is kept with its attempt, as much as an attempt holds, and where bytes are missing a line says
// how many. Neither what another run of the job has written is, nor does a run without output have any.
func TestLostOutputIsKept(t *testing.T) {
	t.Parallel()
	type piece struct {
		begins, ends int
		content      string
	}
	var many, thousands []piece
	for i := range 3000 {
		many = append(many, piece{i * 100, (i + 1) * 100, strings.Repeat("x", 99) + "\n"})
		thousands = append(thousands, piece{i, i + 1, "."})
	}
	for name, test := range map[string]struct {
		pieces []piece
		check  func(t *testing.T, output string)
	}{
		"none": {nil, func(t *testing.T, output string) { t.Helper(); require.Empty(t, output) }},
		"two":  {[]piece{{0, 6, "hello\n"}, {6, 12, "world\n"}}, func(t *testing.T, output string) { t.Helper(); require.Equal(t, "hello\nworld\n", output) }},
		"missing": {[]piece{{10, 16, "hello\n"}, {20, 26, "wörld"}}, func(t *testing.T, output string) {
			t.Helper()
			require.Equal(t, "… 10 bytes cut …\nhello\n… 4 bytes cut …\nwörld", output)
		}},
		"more than an attempt holds": {many, func(t *testing.T, output string) {
			t.Helper()
			require.Greater(t, len(output), 65_000)
			require.True(t, strings.HasPrefix(output, "…\nx"))
			require.True(t, strings.HasSuffix(output, "x\n"))
		}},
		"wide characters": {[]piece{{0, 64_000, strings.Repeat("😀", 16_000)}, {64_000, 128_000, strings.Repeat("😀", 16_000)}}, func(t *testing.T, output string) {
			t.Helper()
			require.Equal(t, "…\n"+strings.Repeat("😀", 16_383), output)
		}},
		"very many pieces": {thousands, func(t *testing.T, output string) {
			t.Helper()
			require.Equal(t, "… 1000 bytes cut …\n"+strings.Repeat(".", 2000), output)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.exec("insert into jobq.pending (kind) values ('k')")
			job := q.claim("w", 1)[0]
			const add = "insert into jobq.output (job_id, lease_token, begins_at, ends_at, content) values ($1, $2, $3, $4, $5)"
			q.exec(add, job.ID, job.LeaseToken-1, 0, 8, "another\n")
			for _, p := range test.pieces {
				q.exec(add, job.ID, job.LeaseToken, p.begins, p.ends, p.content)
			}
			q.reap()
			var output string
			require.NoError(t, q.pool.QueryRow(context.Background(), "select coalesce(output, '') from jobq.attempt where job_id = $1 and outcome = 'lost'", job.ID).Scan(&output))
			require.LessOrEqual(t, len(output), 65_536)
			test.check(t, output)
		})
	}
}
