package janitor_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
)

// Outages are found by a failed call, by a restart of the server, and by a sign that is older than allowed; the latest
// are remembered, for an hour.
func TestOutages(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	longAgo := at(-100_000)
	var p janitor.Patience
	require.False(t, p.Answered(at(0), longAgo, time.Minute), "nothing is known of before")
	require.False(t, p.Answered(at(60), longAgo, time.Minute))
	p.Failed(context.Canceled)
	require.False(t, p.Answered(at(61), longAgo, time.Minute), "the janitor's own end is no outage")
	require.True(t, p.Answered(at(122), longAgo, time.Minute), "a minute and a second")
	p.Failed(io.ErrUnexpectedEOF)
	require.True(t, p.Answered(at(123), longAgo, time.Minute))
	require.False(t, p.Answered(at(124), longAgo, time.Minute))
	require.True(t, p.Answered(at(126), at(125), time.Minute), "the server has started since")
	require.False(t, p.Answered(at(100), at(125), time.Minute), "the clock was set back")
	require.Equal(t, [][2]time.Time{{at(61), at(122)}, {at(122), at(123)}, {at(124), at(126)}}, p.Known())
	require.True(t, p.Answered(at(3724), at(125), time.Minute))
	require.Equal(t, [][2]time.Time{{at(124), at(126)}, {at(100), at(3724)}}, p.Known())
	for i := range 100 {
		p.Failed(io.EOF)
		require.True(t, p.Answered(at(4000+i), at(125), time.Minute))
	}
	require.Len(t, p.Known(), 16)

	p = janitor.Patience{}
	p.Remember(at(0))
	p.Remember(at(100))
	require.True(t, p.Answered(at(101), longAgo, time.Minute), "another janitor has last lived at 12:00")
	require.Equal(t, [][2]time.Time{{at(0), at(101)}}, p.Known())
}

// A lease is over when the database was there for extend_every since extend_every before its end. Method: a lease for
// each line, and outages in seconds before now.
func TestLeasePatience(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ends     float64 // seconds from now
		settings string
		outages  [][2]float64
		want     float64 // seconds from now; 0: it is not left alone
	}{
		"it ended in the outage":             {-500, "", [][2]float64{{-600, 0}}, 20},
		"it ended long before":               {-700, "", [][2]float64{{-600, 0}}, 0},
		"it ended at its beginning":          {-595, "", [][2]float64{{-600, 0}}, 5},
		"it ends soon after it":              {5, "", [][2]float64{{-600, 0}}, 20},
		"it ends later":                      {21, "", [][2]float64{{-600, 0}}, 0},
		"the patience is over":               {-500, "", [][2]float64{{-600, -20}}, 0},
		"outages one after the other":        {-500, "", [][2]float64{{-600, -100}, {-95, 0}}, 15},
		"and time enough between":            {-500, "", [][2]float64{{-600, -100}, {-75, 0}}, 0},
		"the queue's own time":               {-500, "extend_every = '2 s'", [][2]float64{{-600, 0}}, 2},
		"at most half of the lease":          {-500, "lease = '10 s', extend_every = '5 s'", [][2]float64{{-600, 0}}, 5},
		"at most an hour":                    {-500, "lease = '1 day', extend_every = '12 hours'", [][2]float64{{-90_000, 0}}, 3600},
		"a grace that is not over":           {-500, "stale_grace = '490 s'", [][2]float64{{-600, 0}}, 20},
		"nothing extends the queue's leases": {-500, "heartbeat = 'off'", [][2]float64{{-600, 0}}, 0},
		"it was taken":                       {-500, "taken", [][2]float64{{-600, 0}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.exec("insert into jobq.queue (name) values ('default') on conflict do nothing")
			f.running(1, "1 hour", 25)
			if test.settings == "taken" {
				f.exec("update jobq.lease set lost_at = now()")
			} else if test.settings != "" {
				f.exec("update jobq.queue set " + test.settings)
			}
			var now time.Time
			require.NoError(t, f.pool.QueryRow(context.Background(), "select now()").Scan(&now))
			at := func(seconds float64) time.Time { return now.Add(time.Duration(seconds * float64(time.Second))) }
			f.exec("update jobq.lease set expires_at = $1", at(test.ends))
			var since, until []pgtype.Timestamptz
			for _, outage := range test.outages {
				since = append(since, pgtype.Timestamptz{Time: at(outage[0]), Valid: true})
				until = append(until, pgtype.Timestamptz{Time: at(outage[1]), Valid: true})
			}
			schema, err := db.NewSchema(f.client.Schema())
			require.NoError(t, err)
			tx, err := f.pool.Begin(context.Background())
			require.NoError(t, err)
			rows, err := schema.Queries(tx).LeasePatience(context.Background(), since, until, 10)
			require.NoError(t, err)
			var later time.Time
			require.NoError(t, tx.QueryRow(context.Background(), "select clock_timestamp()").Scan(&later))
			require.NoError(t, tx.Rollback(context.Background()))
			if test.want == 0 {
				require.Empty(t, rows)
				return
			}
			left, passed := at(test.want).Sub(now), later.Sub(now)
			if passed >= left {
				return // on a machine that is so slow, it is over
			}
			require.Len(t, rows, 1)
			require.LessOrEqual(t, rows[0].Ms, left.Milliseconds()+1)
			require.GreaterOrEqual(t, rows[0].Ms, (left - passed).Milliseconds())
		})
	}
}

// After an outage, the owner of a lease that ended meanwhile has time to extend it. What nobody extends is taken when
// that time is over, and not earlier. Each mode; the janitor is cut off, and comes back to a database that was there.
func TestPatienceAfterAnOutage(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			proxy := pgtest.StartProxy(t, f.pool.Config().ConnString())
			var err error
			f.client, err = jobq.NewClient(pgtest.Connect(t, proxy.URL), nil)
			require.NoError(t, err)
			f.exec("insert into jobq.queue (name, extend_every) values ('default', '3 s') on conflict (name) do update set extend_every = '3 s'")
			f.running(1, "1 hour", 25)
			f.running(1, "1 hour", 25)
			f.start(janitor.Config{Mode: mode})
			f.eventually("select count(*) from jobq.janitor_seen", 1)
			var cutAt, healedAt, reapedAt, ended time.Time
			scan := func(sql string, into *time.Time) {
				require.NoError(t, f.pool.QueryRow(context.Background(), sql).Scan(into))
			}
			scan("select clock_timestamp()", &cutAt)
			proxy.Refuse(true)
			proxy.Cut()
			require.Eventually(t, func() bool { return strings.Contains(f.log.String(), "interrupted") }, patience, time.Millisecond)
			f.eventually(fmt.Sprintf("select count(*) where clock_timestamp() > '%s'::timestamptz + interval '4 s'", cutAt.Format(time.RFC3339Nano)), 1)
			scan("update jobq.lease set expires_at = clock_timestamp() returning expires_at", &ended)
			owner, err := f.pool.Begin(context.Background()) // of the first lease; it extends it, however slow this machine is
			require.NoError(t, err)
			_, err = owner.Exec(context.Background(), "select from jobq.lease where id = (select min(id) from jobq.lease) for update")
			require.NoError(t, err)
			scan("select clock_timestamp()", &healedAt)
			proxy.Refuse(false)
			require.Eventually(t, func() bool { return strings.Contains(f.log.String(), "have some time more") }, patience, time.Millisecond)
			_, err = owner.Exec(context.Background(), "update jobq.lease set expires_at = now() + interval '1 hour' where id = (select min(id) from jobq.lease)")
			require.NoError(t, err)
			require.NoError(t, owner.Commit(context.Background()))
			f.eventually("select count(*) from jobq.attempt", 1)
			scan("select finished_at from jobq.attempt", &reapedAt)
			require.GreaterOrEqual(t, reapedAt.Sub(healedAt), 3*time.Second, "the whole time of an extension")
			require.Equal(t, 1, f.number("select count(*) from jobq.lease where lost_at is null and expires_at > now()"))
			require.Equal(t, 1, f.number("select count(*) from jobq.job where state = 'running'"))
		})
	}
}

// A janitor that starts when none has lived for long is patient, too. One that starts while others live is not.
func TestPatienceOfTheFirstJanitor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		seen    string
		patient bool
	}{
		"none for long": {"1 hour", true},
		"just now":      {"0 s", false}, // since this server was started
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.exec("insert into jobq.janitor_seen (seen_at, janitor) values (now() - $1::interval, 'j')", test.seen)
			f.exec("insert into jobq.queue (name, extend_every) values ('default', '1 s') on conflict (name) do update set extend_every = '1 s'")
			f.running(1, "-1 s", 25)
			f.start(janitor.Config{})
			f.eventually("select count(*) from jobq.attempt", 1)
			require.Equal(t, test.patient, strings.Contains(f.log.String(), "have some time more"))
		})
	}
}
