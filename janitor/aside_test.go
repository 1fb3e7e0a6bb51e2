package janitor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/monitor"
)

// claimed makes a lease of new jobs with these ids, which has expired.
func (f *fixture) claimed(lease string, jobs ...int64) {
	f.Helper()
	f.exec(`with l as (
			insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
				values ($1::text::bigint, now() - interval '1 minute', now() - interval '1 s', 'dead', 'default', $2)
		)
		insert into jobq.run (id, lease_id, slot, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
			select j.id, $1::text::bigint, j.slot, now(), 0, 0, 25, 0, false, 'default', 'task', '{}'
			from unnest($2::bigint[]) with ordinality as j(id, slot)`, lease, jobs)
}

// Leases of every odd kind, each of a statement that would fail because of it. All others are reaped, and
// the log, the events and the doctor's query name those that cannot be.
func TestOddLeasesAreSetAside(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		plant  string // changes the lease 7 of the jobs 71, 72 and 73
		lease  string // what is named; empty: the lease is reaped
		reaped int    // of its jobs
	}{
		"negative id": {plant: "update jobq.lease set id = -7 where id = 7; update jobq.run set lease_id = -7 where lease_id = 7", lease: "lease -7"},
		"id beyond all": {
			plant: "update jobq.lease set id = 9223372036854775807 where id = 7; update jobq.run set lease_id = 9223372036854775807 where lease_id = 7",
			lease: "lease 9223372036854775807",
		},
		"a job without a kind":     {plant: "update jobq.run set kind = '' where id = 72", lease: "job 72 of lease 7", reaped: 2},
		"a job with odd attempts":  {plant: "update jobq.run set attempts = 32767, max_attempts = 32767 where id = 72", lease: "job 72 of lease 7", reaped: 2},
		"two jobs without a queue": {plant: "update jobq.run set queue = '' where id in (71, 73)", lease: "job 73 of lease 7", reaped: 1},
		"too many slots":           {plant: "update jobq.lease set job_ids = job_ids || array(select i from generate_series(100, 33000) i) where id = 7", lease: "lease 7"},
		"ends of no slot":          {plant: "update jobq.lease set ended_slots = '{99, 98, 1}', ended_ms = '{5}' where id = 7", reaped: 2},
		"ids that are null":        {plant: "update jobq.lease set job_ids = array[null, 72, 73] where id = 7", reaped: 2},
		"no jobs":                  {plant: "update jobq.lease set job_ids = '{}' where id = 7"},
		"expired before time":      {plant: "update jobq.lease set expires_at = '-infinity' where id = 7", reaped: 3},
		"claimed at no time":       {plant: "update jobq.lease set claimed_at = 'infinity' where id = 7", reaped: 3},
		"claimed before time":      {plant: "update jobq.lease set claimed_at = '-infinity' where id = 7", reaped: 3},
		"lost at no time":          {plant: "update jobq.lease set lost_at = 'infinity' where id = 7", reaped: 3},
		"a queue without a name":   {plant: "update jobq.lease set queue = '' where id = 7", reaped: 3},
		"a row that a trigger fails": {plant: `create function public.no() returns trigger language plpgsql as 'begin if new.id = 72 then raise ''no''; end if; return new; end';
			create trigger no before insert on jobq.pending for each row execute function public.no()`, lease: "job 72 of lease 7", reaped: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.claimed("6", 61)
			f.claimed("7", 71, 72, 73)
			f.claimed("8", 81, 82)
			f.exec(test.plant)
			var told events
			f.start(janitor.Config{ScanInterval: 10 * time.Millisecond, OnEvent: told.add})
			f.eventually("select count(*) from jobq.pending where id in (61, 81, 82)", 3)
			f.eventually("select count(*) from jobq.pending where id in (71, 72, 73)", test.reaped)
			if test.lease == "" {
				f.eventually("select count(*) from jobq.lease", 0)
				require.Empty(t, told.of(monitor.EventError))
				return
			}
			require.Eventually(t, func() bool {
				for _, event := range told.of(monitor.EventError) {
					if strings.HasPrefix(event.Err.Error(), test.lease+" cannot be reaped: ") {
						return true
					}
				}
				return false
			}, patience, time.Millisecond)
			require.NotEmpty(t, f.logged(`msg="cannot be reaped, set aside" .*what="`+test.lease+`"`, 1))
			// What comes later is reaped as well, and the janitor does not end.
			f.claimed("9", 91)
			f.eventually("select count(*) from jobq.pending where id = 91", 1)
			require.Zero(t, f.number(`select count(*) from jobq.event where type = 'leadership_lost'`))
		})
	}
}

// Scheduled jobs that the database refuses to promote, here because of a trigger of somebody's. The log names each of them, once;
// all others become available, also those that are due later, and the leader stays.
func TestJobsThatCannotBePromotedArePassedBy(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec(`create function public.no() returns trigger language plpgsql as 'begin if new.args ->> 0 = ''odd'' then raise ''no''; end if; return new; end';
		create trigger no before update on jobq.pending for each row execute function public.no()`)
	f.exec(`insert into jobq.pending (kind, position, run_at, args)
		select 'task', null, now() - interval '1 minute' + i * interval '1 ms', case when i in (3, 4, 900) then '["odd"]' else '[]' end::jsonb from generate_series(1, 1000) i`)
	f.start(janitor.Config{ScanInterval: 20 * time.Millisecond})
	require.Eventually(t, func() bool {
		return f.number("select count(*) from jobq.pending where position is null") == 3 && strings.Count(f.log.String(), "job cannot be promoted, passed by") == 3
	}, patience, 5*time.Millisecond)
	f.exec("select jobq.enqueue('task', run_at => now() + interval '10 ms')")
	require.Eventually(t, func() bool { return f.number("select count(*) from jobq.pending where position is not null") == 998 }, patience, 5*time.Millisecond)
	require.Equal(t, 3, strings.Count(f.log.String(), "job cannot be promoted, passed by"), "each is told of once in a while")
	require.NotContains(t, f.log.String(), "leadership lost")
	f.exec("drop trigger no on jobq.pending")
	require.Eventually(t, func() bool { return f.number("select count(*) from jobq.pending where position is null") == 0 }, patience, 5*time.Millisecond)
}
