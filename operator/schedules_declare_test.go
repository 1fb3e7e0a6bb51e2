package operator_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// declares is a declaration of hourly schedules, with these names.
func declares(version int, names ...string) operator.Declaration {
	d := operator.Declaration{App: "billing", Version: version}
	for _, name := range names {
		d.Schedules = append(d.Schedules, jobq.Schedule{Name: name, Every: time.Hour, Kind: "k"})
	}
	return d
}

// declared is what came of a declaration.
func (u *undoing) declared(d operator.Declaration) operator.Declared {
	u.Helper()
	done, err := u.DeclareSchedules(u.ctx, d)
	require.NoError(u, err)
	return done
}

// what is a result with these names.
func what(changed, enabled, disabled, refused []string) operator.Declared {
	some := func(names []string) []string { return append([]string{}, names...) }
	return operator.Declared{Changed: some(changed), Enabled: some(enabled), Disabled: some(disabled), Refused: some(refused)}
}

// paused are the reasons of pauses, by the names of the schedules that are paused.
func (u *undoing) paused() map[string]string {
	u.Helper()
	schedules, err := u.m.Schedules(u.ctx, "", 100)
	require.NoError(u, err)
	reasons := make(map[string]string)
	for _, s := range schedules {
		if s.PausedAt != nil {
			reasons[s.Name] = s.PauseReason
		}
	}
	return reasons
}

// Declared schedules are made, changed, disabled when they are declared no more, and
// enabled when they are again. Those of another application, or made by hand, are left
// alone, and so is what a person has paused. A second time nothing is written.
func TestDeclareSchedules(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	u.set(jobq.Schedule{Name: "hand", Every: time.Minute, Kind: "hand"})
	u.set(jobq.Schedule{Name: "other", Every: time.Minute, Kind: "other", Source: "billing-2"})
	require.Equal(t, what([]string{"a", "b"}, nil, nil, []string{"hand", "other"}), u.declared(declares(0, "b", "other", "a", "hand")))
	hand, err := u.m.Schedule(u.ctx, "hand")
	require.NoError(t, err)
	require.Equal(t, "hand", hand.Kind)
	before, err := u.m.Audit(u.ctx, 0, 1)
	require.NoError(t, err)
	require.Equal(t, what(nil, nil, nil, nil), u.declared(declares(0, "a", "b")))
	after, err := u.m.Audit(u.ctx, 0, 1)
	require.NoError(t, err)
	require.Equal(t, before, after, "nothing was written")

	require.Equal(t, what(nil, nil, []string{"b"}, nil), u.declared(declares(0, "a")))
	require.Equal(t, what(nil, nil, nil, nil), u.declared(declares(0, "a")))
	require.Equal(t, map[string]string{"b": "declared no more by billing"}, u.paused())
	require.NoError(t, jobtest.ErrorOf(u.PauseSchedule(u.ctx, "a", "by ann")))
	require.Equal(t, what(nil, []string{"b"}, nil, nil), u.declared(declares(0, "a", "b")))
	require.Equal(t, map[string]string{"a": "by ann"}, u.paused(), "who has paused it, has")
	require.Equal(t, what(nil, nil, []string{"b"}, nil), u.declared(declares(0)), "a is paused already, for a person's reason")
	require.Equal(t, map[string]string{"a": "by ann", "b": "declared no more by billing"}, u.paused())
}

// An older declaration changes nothing, whatever was done under the newer one, also when
// that has disabled all; the same version may differ, and the last one counts.
func TestOlderDeclaration(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	u.declared(declares(1, "a", "b"))
	require.Equal(t, what([]string{"a"}, nil, []string{"b"}, nil), u.declared(declares(2, "a")))
	older := what(nil, nil, nil, nil)
	older.Newer = 2
	require.Equal(t, older, u.declared(declares(1, "a", "b")))
	require.Equal(t, older, u.declared(declares(0, "c")))
	require.Contains(t, u.paused(), "b")
	require.Equal(t, what(nil, nil, []string{"a"}, nil), u.declared(declares(3)))
	older.Newer = 3
	require.Equal(t, older, u.declared(declares(2, "a")))
	require.Equal(t, what([]string{"a"}, []string{"a"}, nil, nil), u.declared(declares(3, "a")))
}

// What is wrong with a declaration is said, with the name of the schedule.
func TestDeclarationRefused(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	for want, d := range map[string]operator.Declaration{
		"app must be 1 to 100 letters":                    {App: "a, version 2"},
		"version must be 0 or more, not -1":               {App: "a", Version: -1},
		`set schedule "x": invalid value: either cron or`: {App: "a", Schedules: []jobq.Schedule{{Name: "x", Kind: "k"}}},
	} {
		_, err := u.DeclareSchedules(u.ctx, d)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
}

// sources are who declares each schedule, and whether it is paused.
func (u *undoing) sources() map[string]string {
	u.Helper()
	schedules, err := u.m.Schedules(u.ctx, "", 100)
	require.NoError(u, err)
	sources := make(map[string]string)
	for _, s := range schedules {
		sources[s.Name] = s.Source
		if s.PausedAt != nil {
			sources[s.Name] += ", paused"
		}
	}
	return sources
}

// Of two declarations at once, one waits for all of the other, and the newer version
// wins, whichever comes first.
func TestDeclarationsAtOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what          string
		held          string // a schedule that somebody has locked, so that the first declaration waits in the middle
		first, second operator.Declaration
		newer         int // what the second is told
		want          map[string]string
	}{
		{
			"older first", "b", declares(1, "a", "b", "z"), declares(2, "a", "b"), 0,
			map[string]string{"a": "billing, version 2", "b": "billing, version 2", "z": "billing, version 1, paused"},
		},
		{
			"newer first", "a", declares(2, "a", "b"), declares(1, "a", "b", "z"), 2,
			map[string]string{"a": "billing, version 2", "b": "billing, version 2"},
		},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			u := newUndoing(t)
			u.declared(declares(0, "a", "b"))
			tx, err := u.client.Pool().Begin(u.ctx)
			require.NoError(t, err)
			_, err = tx.Exec(u.ctx, "select from jobq.schedule where name = $1 for update", test.held)
			require.NoError(t, err)
			type result struct {
				operator.Declared
				err error
			}
			start := func(d operator.Declaration, waiting int) chan result {
				done := make(chan result, 1)
				go func() {
					declared, err := u.DeclareSchedules(u.ctx, d)
					done <- result{declared, err}
				}()
				require.Eventually(t, func() bool {
					var count int
					require.NoError(t, u.client.Pool().QueryRow(u.ctx, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&count))
					return count == waiting
				}, time.Minute, time.Millisecond)
				return done
			}
			first := start(test.first, 1)
			second := start(test.second, 2)
			require.NoError(t, tx.Commit(u.ctx))
			require.NoError(t, (<-first).err)
			came := <-second
			require.NoError(t, came.err)
			require.Equal(t, test.newer, came.Newer)
			require.Equal(t, test.want, u.sources())
		})
	}
}

// A declaration that the database refuses a schedule of changes nothing, and the error
// names the schedule. There may be only so many.
func TestDeclarationIsWhole(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	d := declares(0, "a", "b", "c")
	d.Schedules[1].Overlap = "maybe"
	_, err := u.DeclareSchedules(u.ctx, d)
	require.ErrorIs(t, err, jobq.ErrInvalid)
	require.EqualError(t, err, `set schedule "b": invalid value: overlap must be allow or skip, not maybe`)
	var of *operator.DeclarationError
	require.ErrorAs(t, err, &of)
	require.Equal(t, "b", of.Schedule)
	require.Empty(t, u.sources())
	_, err = u.DeclareSchedules(u.ctx, declares(0, make([]string, 1001)...))
	require.ErrorIs(t, err, jobq.ErrInvalid)
	require.ErrorContains(t, err, "at most 1000 schedules, not 1001")
}

// A declaration that changes nothing needs no privilege but to read, whatever a schedule
// says; each thing that differs is written.
func TestDeclareTheSame(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	d := operator.Declaration{App: "billing", Schedules: []jobq.Schedule{everything, {Name: "t", Every: time.Minute, Kind: "k"}}}
	u.declared(d)
	readOnly := func() error {
		config := u.client.Pool().Config()
		config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
		pool, err := pgxpool.NewWithConfig(u.ctx, config)
		require.NoError(t, err)
		defer pool.Close()
		client, err := jobq.NewClient(pool, &jobq.Config{Schema: u.client.Schema()})
		require.NoError(t, err)
		_, err = operator.New(client, "ann").DeclareSchedules(u.ctx, d)
		return err
	}
	require.NoError(t, readOnly())
	for what, change := range map[string]func(s *jobq.Schedule){
		"cron": func(s *jobq.Schedule) { s.Cron = "0 8 * * mon" }, "time_zone": func(s *jobq.Schedule) { s.TimeZone = "" },
		"kind": func(s *jobq.Schedule) { s.Kind = "other" }, "args": func(s *jobq.Schedule) { s.Args = nil },
		"queue": func(s *jobq.Schedule) { s.Queue = "" }, "priority": func(s *jobq.Schedule) { s.Priority = 0 },
		"max_attempts": func(s *jobq.Schedule) { s.MaxAttempts = 0 }, "timeout": func(s *jobq.Schedule) { s.Timeout = 0 },
		"backoff_base": func(s *jobq.Schedule) { s.BackoffBase = 0 }, "backoff_max": func(s *jobq.Schedule) { s.BackoffMax = 0 },
		"tags": func(s *jobq.Schedule) { s.Tags = nil }, "metadata": func(s *jobq.Schedule) { s.Metadata = nil },
		"partition_key": func(s *jobq.Schedule) { s.PartitionKey = "" }, "catch_up": func(s *jobq.Schedule) { s.CatchUp = "" }, "catch_up_max": func(s *jobq.Schedule) { s.CatchUpMax = 0 },
		"catch_up_within": func(s *jobq.Schedule) { s.CatchUpWithin = 0 }, "overlap": func(s *jobq.Schedule) { s.Overlap = "" },
	} {
		d.Schedules[0] = everything
		change(&d.Schedules[0])
		require.ErrorIs(t, readOnly(), jobq.ErrUnavailable, what)
		require.Equal(t, []string{"s"}, u.declared(d).Changed, what)
		require.NoError(t, readOnly(), what)
		d.Schedules[0] = everything
		u.declared(d)
	}
	d.Schedules[1].Args = json.RawMessage(`{"n": 10}`)
	u.declared(d)
	d.Schedules[1].Args = json.RawMessage(`{"n": 1e1}`)
	require.Empty(t, u.declared(d).Changed, "the database says that they are the same")
}

// A name that is declared twice is refused: the second one would not be compared with
// what is there, which may be another's.
func TestDeclareTwice(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	u.set(jobq.Schedule{Name: "hand", Every: time.Minute, Kind: "hand"})
	_, err := u.DeclareSchedules(u.ctx, declares(0, "a", "hand", "hand"))
	require.ErrorIs(t, err, jobq.ErrInvalid)
	var of *operator.DeclarationError
	require.ErrorAs(t, err, &of)
	require.Equal(t, "hand", of.Schedule)
	schedules, err := u.m.Schedules(u.ctx, "", 100)
	require.NoError(t, err)
	require.Len(t, schedules, 1)
	require.Equal(t, "hand", schedules[0].Kind)
}
