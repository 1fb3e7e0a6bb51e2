package line

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

func rowAt(position int64) db.JobClaimRow {
	return db.JobClaimRow{Position: pgtype.Int8{Int64: position, Valid: true}}
}

// planner is a Planner with a clock that the test sets.
type planner struct {
	*Planner
	now time.Duration
}

// newPlanner returns one that has got the job at a position.
func newPlanner(position int64) *planner {
	p := &planner{Planner: New(), now: time.Hour}
	p.claimed(position)
	return p
}

// claimed makes the planner believe that it has got the job at a position.
func (p *planner) claimed(position int64) {
	p.bound.Advance([]db.JobClaimRow{rowAt(position)})
}

func newRequest(jobs int32) *db.JobClaimParams { return &db.JobClaimParams{JobCount: jobs} }

// begin is a claim for so many jobs: where in the line it begins, and what it is.
func (p *planner) begin(jobs int32) (claim Claim, from int64) {
	request := newRequest(jobs)
	claim = p.Begin(p.now, request, false)
	return claim, request.FromPositions[len(request.FromPositions)-1]
}

func (p *planner) answered(claim Claim, took time.Duration, positions ...int64) (leftNothing bool) {
	rows := make([]db.JobClaimRow, len(positions))
	for i, position := range positions {
		rows[i] = rowAt(position)
	}
	return p.Answered(p.now, claim, rows, took)
}

func (p *planner) failed(claim Claim, took time.Duration, tooLong bool) {
	p.Failed(p.now, claim, took, tooLong)
}

// pass lets as much time go by as there is between two looks of the reach.
func (p *planner) pass(reach int) { p.now += reachEvery[reach] }

const slow = time.Minute // for a look

// A look begins where the last but one of its reach ended. There is none while one
// is under way, nor when nothing was claimed since.
func TestLooksBackInSteps(t *testing.T) {
	t.Parallel()
	p := newPlanner(10)
	whole, from := p.begin(1)
	require.True(t, whole.IsWhole())
	require.Zero(t, from)
	p.claimed(20) // another claim, meanwhile
	beyond, from := p.begin(1)
	require.False(t, beyond.looksBack, "one is under way")
	require.EqualValues(t, 20, from)
	require.Equal(t, never, p.looks.next(p.bound))
	p.answered(whole, slow)
	require.Greater(t, p.looks.next(p.bound), p.now, "it is not time")

	short := func(want int64) {
		t.Helper()
		p.pass(0)
		look, from := p.begin(1)
		require.True(t, look.looksBack)
		require.Zero(t, look.reach)
		require.Equal(t, want, from)
		p.answered(look, 0)
	}
	short(0)
	p.claimed(30)
	short(10)
	p.claimed(40)
	short(20)
	short(30)
	p.pass(0)
	beyond, _ = p.begin(1)
	require.False(t, beyond.looksBack, "nothing was claimed since")

	p.pass(1)
	longer, from := p.begin(1)
	require.Equal(t, 1, longer.reach)
	require.Zero(t, from)
	p.answered(longer, 0)
	p.claimed(50)
	p.pass(1)
	longer, from = p.begin(1)
	require.Equal(t, 1, longer.reach, "the longest that is due")
	require.EqualValues(t, 10, from)
}

// A look that was filled goes on where it ended, and not only when the whole line
// is due again.
func TestFilledLookGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlanner(1000)
	whole, _ := p.begin(2)
	p.answered(whole, slow, 8, 5)
	next, from := p.begin(2)
	require.True(t, next.looksBack)
	require.EqualValues(t, 8, from)
	p.answered(next, slow, 9, 12)
	next, from = p.begin(2)
	require.True(t, next.looksBack)
	require.EqualValues(t, 12, from)
	p.answered(next, 0, 13)
	beyond, _ := p.begin(2)
	require.False(t, beyond.looksBack, "all was looked at")
}

// Claims that are filled beyond the bound, as in a busy queue, have looked at all
// that lies before it.
func TestBusyQueueLooksBackInTime(t *testing.T) {
	t.Parallel()
	p := newPlanner(10)
	whole, _ := p.begin(1)
	require.True(t, whole.IsWhole())
	p.answered(whole, slow, 11)
	beyond, from := p.begin(1)
	require.False(t, beyond.looksBack)
	require.EqualValues(t, 11, from)
}

// What a look that failed was to cover, the next one of its reach covers.
func TestFailedLookBack(t *testing.T) {
	t.Parallel()
	p := newPlanner(10)
	for _, position := range []int64{10, 20} {
		p.claimed(position)
		p.now += restMax
		whole, _ := p.begin(1)
		p.answered(whole, slow)
	}
	p.claimed(30)
	p.pass(0)
	failed, from := p.begin(1)
	require.EqualValues(t, 10, from)
	p.failed(failed, 0, false)
	again, from := p.begin(1)
	require.Zero(t, again.reach)
	require.EqualValues(t, 10, from)
	p.failed(again, slow, true)
	beyond, _ := p.begin(1)
	require.False(t, beyond.looksBack, "not at once after one that took too long")
}

// A line without dead entries is looked at as a whole each time.
func TestQuickLooksAreWhole(t *testing.T) {
	t.Parallel()
	p := newPlanner(0)
	for position := range int64(10) {
		p.claimed(position)
		look, _ := p.begin(1)
		require.True(t, look.IsWhole())
		p.answered(look, 0)
	}
}

// A job that commits late is found after the time of the shortest reach that is
// as long as it was late, and the looks under way. Here claims pass 30 jobs a
// millisecond, a million dead entries take a second, and jobs are late by
// anything up to the longest reach.
func TestLatenessIsBounded(t *testing.T) {
	t.Parallel()
	const (
		tick      = time.Millisecond
		passed    = 30 // jobs a tick
		entryTime = time.Microsecond
		length    = 2 * time.Minute
	)
	type lateJob struct {
		position          int64
		commits, lateness time.Duration
	}
	var (
		back    looksBack
		waiting []lateJob
		long    int
		from    db.Line
		bound   db.Line
		began   time.Duration
		ends    time.Duration // of the look under way
		longest time.Duration // look
		found   int
	)
	longestReach := reachEvery[wholeLine-1]
	line := db.Line{0: 0}
	for now := tick; now < length; now += tick {
		line[0] += passed
		if rand.N(10) == 0 { // #nosec G404 -- no secret
			lateness := rand.N(longestReach) >> rand.N(14)                                                // #nosec G404
			waiting = append(waiting, lateJob{line[0] - rand.N(int64(passed)), now + lateness, lateness}) // #nosec G404
		}
		if back.underWay > 0 && now >= ends {
			back.done(now, long, bound, now-began)
			kept := waiting[:0]
			for _, job := range waiting {
				if job.commits <= began && job.position > from[0] {
					found++
					continue
				}
				within := longestReach
				for _, every := range reachEvery[:wholeLine] {
					if job.lateness <= every {
						within = every
						break
					}
				}
				require.LessOrEqual(t, now-job.commits, within+within/4+4*longest, "late by %s", job.lateness)
				kept = append(kept, job)
			}
			waiting = kept
		}
		if reach, ok := back.due(now, line); ok {
			long, from, bound, began = reach, back.begin(reach), maps.Clone(line), now
			took := time.Duration(line[0]-from[0]) * entryTime
			longest, ends = max(longest, took), now+took
		}
	}
	require.Greater(t, found, 10_000)
}

// Only claims of the whole line, and those that begin with aged priorities, try to lock rows that seem locked: a row whose
// lock is a multixact can seem locked for long, and the others would pass it each time.
func TestWhichClaimsTryLockedRows(t *testing.T) {
	t.Parallel()
	p := agedPlanner()
	tried := make(map[string]int)
	for i := range int64(200) {
		request := newRequest(1)
		claim := p.Begin(p.now, request, false)
		require.Equal(t, !claim.IsWhole() && !claim.aged, request.PassLocked, "claim %d", i)
		switch {
		case claim.aged:
			tried["aged"]++
		case claim.IsWhole():
			tried["whole"]++
		default:
			tried["other"]++
		}
		p.answered(claim, time.Second, 101+i)
		p.now += 100 * time.Millisecond
	}
	require.Greater(t, tried["aged"], 1)
	require.Greater(t, tried["whole"], 1)
	require.Greater(t, tried["other"], 1)
}
