package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// kindAct pauses or resumes a kind, and returns the id in the audit.
func (q *queue) kindAct(action, kind string) (audit int) {
	q.Helper()
	return q.number("select coalesce(jobq.act_kind('me', $1, $2, null), 0)", action, kind)
}

// claimKinds claims as both kinds of queues do, and returns the kinds of what it got.
func (q *queue) claimKinds(each bool) (kinds []string) {
	q.Helper()
	for _, job := range q.exchange(db.Exchange{Owner: "w", Claim: &db.JobClaimParams{
		LeasePerJob: each,
		Lease:       hour, Owner: "w", Queue: "default", Kinds: []string{"a", "b"}, JobCount: 10,
	}}).Claimed {
		kinds = append(kinds, job.Kind)
	}
	return kinds
}

// Nothing of a kind is claimed from the commit of its pause until it is resumed, in
// whatever way leases are given; other kinds go on, and it does not count as work that waits.
func TestPausedKindIsNotClaimed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, each := range []bool{false, true} {
		t.Run(fmt.Sprintf("each %t", each), func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			waits := func(kinds ...string) bool {
				waits, err := q.queries.WorkWaits(ctx, true, kinds, []string{"default"})
				require.NoError(t, err)
				return waits
			}
			q.exec("insert into jobq.pending (kind) values ('a'), ('b')")
			q.exec("insert into jobq.pending (kind, position, run_at) values ('a', null, now() - interval '1 s')") // due
			require.True(t, waits("a"))
			tx, err := q.pool.Begin(ctx)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "select jobq.act_kind('me', 'kind_pause', 'a', 'broken')")
			require.NoError(t, err)
			require.True(t, waits("a"), "before the commit")
			require.NoError(t, tx.Commit(ctx))
			require.Zero(t, q.kindAct("kind_pause", "a"), "already")
			require.Equal(t, []string{"b"}, q.claimKinds(each))
			require.False(t, waits("a", "b"))
			require.Empty(t, q.claimKinds(each))
			require.Positive(t, q.kindAct("kind_resume", "a"))
			require.Zero(t, q.kindAct("kind_resume", "a"), "already")
			require.True(t, waits("a"))
			require.Equal(t, []string{"a"}, q.claimKinds(each))
			require.Zero(t, q.number("select count(*) from jobq.kind"), "a kind that is not paused has no row")
		})
	}
}

// A kind is paused when runs of it were lost so many times in a row, each claimed after
// the crash before it was found. Method: each step of a story is told by its runs that were lost,
// or by what ended well; the clock is moved by ageing what is stored by two minutes before each.
func TestKindsCrashed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	// lost: "a" was claimed since the last step; "old a" before it; "a@x" by a worker of host x, "a@x+" if another worker of x has
	// lived on. back: a worker of that host has started. done: of that kind, one has ended otherwise. sleep: one of kind k has ended in a durable sleep.
	for name, story := range map[string]struct {
		steps  string
		paused string
	}{
		"three in a row":                     {"lost a; lost a; lost a", "a"},
		"two":                                {"lost a; lost a", ""},
		"a success in between":               {"lost a; lost a; done a; lost a; lost a", ""},
		"a success before":                   {"done a; lost a; lost a; lost a", "a"},
		"a sleep in between":                 {"lost k; lost k; sleep k; lost k; lost k", ""},
		"three after a sleep":                {"lost k; lost k; sleep k; lost k; lost k; lost k", "k"},
		"other kinds sleep":                  {"lost a; sleep k; lost a; sleep k; lost a", "a"},
		"a sleep of one that is paused":      {"lost k; lost k; lost k; sleep k", "k"},
		"three after a success":              {"lost a; lost a; done a; lost a; lost a; lost a", "a"},
		"other kinds succeed":                {"lost a; done b; lost a; done b; lost a", "a"},
		"machines that fail together":        {"lost a a a; lost old a; lost old a; lost old a; lost a", ""},
		"the innocent goes on":               {"lost a b; lost a b; done b; lost a b; lost a b", "a"},
		"one at a time, that with the most":  {"lost b; lost a b; lost a b; lost a", "b a"},
		"one that is paused is not counted":  {"lost a; lost a; lost a; lost a", "a"},
		"a day later":                        {"lost a; lost a; day; lost a; lost a", ""},
		"resumed, its crashes begin anew":    {"lost a; lost a; lost a; resume a; lost a; lost a", ""},
		"resumed, and crashes again":         {"lost a; lost a; lost a; resume a; lost a; lost a; lost a", "a"},
		"a cancelled one is no success":      {"lost a; lost a; cancelled a; lost a", "a"},
		"one that was lost for good is none": {"lost a; lost a; dead a; lost a", "a"},
		"five machines that vanish":          {"lost a@v; lost a@w; lost a@x; lost a@y; lost a@z", ""},
		"others of the hosts live on":        {"lost a@x+; lost a@y+; lost a@z+", "a"},
		"it takes its machine down":          {"lost a@x; back x; lost a@x; back x; lost a@x; back x; lost a@x", "a"},
		"the last one is not back yet":       {"lost a@x; back x; lost a@x; back x; lost a@x", ""},
		"a rack that comes back is one":      {"lost a@x a@y a@z; back x; back y; back z; lost a", ""},
		"a rack that comes back, and two":    {"lost a@x a@y a@z; back x; back y; back z; lost a; lost a", "a"},
		"some of a rack live":                {"lost a@x; lost old a@y+; lost old a@z; back z; lost a", ""},
		"some of a rack live, and two":       {"lost a@x; lost old a@y+; lost old a@z; back z; lost a; lost a", "a"},
		"back, and a success":                {"lost a@x; back x; lost a; done a; lost a; lost a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.exec("update jobq.setting set quarantine_crashes = 3")
			q.exec("select jobq.enqueue('k') from generate_series(1, 2)")
			sleepers := q.claim("a", 2) // before the kind is paused
			stat := func(kind, columns string) {
				q.exec(`insert into jobq.stat_delta (minute, queue, kind, run_seconds, wait_seconds, completed, failed, retried, lost, cancelled)
					select date_trunc('minute', now()), 'q', $1, 0, 0, `+columns, kind)
			}
			workers := 0
			worker := func(host, heard string) (id string) { // which was heard of last so long ago
				workers++
				id = fmt.Sprintf("%s-%d", host, workers)
				q.exec(`insert into jobq.worker (id, started_at, heartbeat_at, pid, hostname, version, queues, kinds, kind_slots)
					values ($1, now() - interval '1 hour', now() - $3::text::interval, 1, $2, '', '{}', '{}', '{}')`, id, host, heard)
				return id
			}
			var paused []string
			for step := range strings.SplitSeq(story.steps, "; ") {
				words := strings.Fields(step)
				age := "2 minutes"
				if words[0] == "day" {
					age = "25 hours"
				}
				q.exec("update jobq.kind set crashed_at = crashed_at - $1::text::interval", age)
				q.exec("update jobq.kind set gone_at = array(select x - $1::text::interval from unnest(gone_at) with ordinality as g(x, n) order by g.n)", age)
				q.exec("update jobq.worker set heartbeat_at = heartbeat_at - $1::text::interval, started_at = started_at - $1::text::interval", age)
				q.exec("update jobq.stat_delta set minute = minute - $1::text::interval", age)
				switch words[0] {
				case "done":
					stat(words[1], "1, 0, 0, 0, 0")
				case "cancelled":
					stat(words[1], "0, 0, 0, 0, 1")
				case "sleep":
					_, err := q.queries.StepSleep(ctx, db.StepSleepParams{JobID: sleepers[0].ID, Token: runToken(sleepers[0]), Name: "night", Delay: hour})
					require.NoError(t, err)
					sleepers = sleepers[1:]
				case "dead":
					stat(words[1], "0, 1, 0, 1, 0")
				case "resume":
					require.Positive(t, q.kindAct("kind_resume", words[1]))
					paused = nil
				case "back":
					worker(words[1], "0 s")
				case "lost":
					reaped, at := []db.LeaseReapRow{}, time.Now().Add(-time.Minute)
					for _, kind := range words[1:] {
						if kind == "old" {
							at = time.Now().Add(-time.Hour)
							continue
						}
						kind, host, _ := strings.Cut(kind, "@")
						host, lives := strings.CutSuffix(host, "+")
						row := db.LeaseReapRow{Kind: kind, Begun: true, LeaseOwner: "unknown"}
						if host != "" {
							row.LeaseOwner = worker(host, "1 minute")
						}
						if lives {
							worker(host, "1 s")
						}
						row.ClaimedAt.Time, row.ClaimedAt.Valid = at, true
						reaped = append(reaped, row)
					}
					rows, err := q.queries.Quarantine(ctx, reaped, "janitor")
					require.NoError(t, err)
					require.LessOrEqual(t, len(rows), 1)
					for _, row := range rows {
						require.EqualValues(t, 3, row.Crashes)
						paused = append(paused, row.Kind)
					}
					for _, kind := range words[1:] { // as the reap counts them
						kind, _, _ = strings.Cut(kind, "@")
						if kind != "old" {
							stat(kind, "0, 0, 1, 1, 0")
						}
					}
				}
			}
			require.Equal(t, story.paused, strings.Join(paused, " "))
			require.Equal(t, len(paused), q.number("select count(*) from jobq.kind where paused_at is not null and paused_by = 'jobq' and pause_reason like 'quarantine: workers that ran it crashed 3 times in a row'"))
			if len(paused) > 0 {
				require.Positive(t, q.number("select count(*) from jobq.audit where actor = 'jobq' and action = 'kind_pause' and target = $1", paused[0]))
				require.Positive(t, q.number("select count(*) from jobq.event where type = 'quarantined' and source = 'janitor' and message like '%' || $1 || '%'", paused[0]))
			}
		})
	}
}

// A limit of 0 pauses nothing, however often workers crash.
func TestNoQuarantine(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("update jobq.setting set quarantine_crashes = 0")
	for range 10 {
		q.exec("update jobq.kind set crashed_at = crashed_at - interval '2 minutes'")
		require.Zero(t, q.number("select count(*) from jobq.kinds_crashed('{a}', array[now()], '{w}', 'janitor')"))
	}
	require.Equal(t, 10, q.number("select crashes from jobq.kind"))
}

// Counting crashes waits for nobody for long: recovery goes on after it.
func TestCrashesWaitForNoOperator(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(ctx)) }()
	_, err = tx.Exec(ctx, "select jobq.act_kind('me', 'kind_pause', 'a', null)")
	require.NoError(t, err)
	row := db.LeaseReapRow{Kind: "a", Begun: true}
	row.ClaimedAt.Time, row.ClaimedAt.Valid = time.Now(), true
	counting, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, counting.Rollback(ctx)) }()
	_, err = counting.Exec(ctx, "set local lock_timeout = 0") // what the session says does not matter
	require.NoError(t, err)
	_, err = q.schema.Queries(counting).Quarantine(ctx, []db.LeaseReapRow{row}, "janitor")
	require.ErrorContains(t, err, "lock timeout")
}

// Kinds that have crashed workers are listed for as long as that counts, and those that
// are paused for as long as they are.
func TestKindListOfCrashes(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec(`insert into jobq.kind (name, crashes, crashed_at, paused_at) values ('lately', 1, now() - interval '23 hours', null),
		('long ago', 1, now() - interval '25 hours', null), ('paused', 5, now() - interval '25 hours', now() - interval '25 hours')`)
	rows, err := q.queries.KindList(context.Background(), 1000, hour)
	require.NoError(t, err)
	var names []string
	for _, row := range rows {
		names = append(names, row.Name)
	}
	require.Equal(t, []string{"lately", "paused"}, names)
}
