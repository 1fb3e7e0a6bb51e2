package operator_test

import (
	"testing"
	"time"

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
