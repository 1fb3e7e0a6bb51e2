package operator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// settingsOf are those of a kind, as the monitor shows them.
func settingsOf(t *testing.T, client *jobq.Client, kind string) (settings monitor.KindSettings) {
	t.Helper()
	kinds, err := monitor.New(client).Kinds(context.Background())
	require.NoError(t, err)
	for _, k := range kinds {
		if k.Name == kind {
			return k.KindSettings
		}
	}
	return settings
}

// A program declares its kinds whenever it starts: the first time all is set, then nothing is written, and the right to
// read is enough. A setting that is not declared stays; a default, and the zero value, take it away. An error names the
// kind, and what was declared before it stays.
func TestDeclareKinds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, as := loginsServer(t, "worker", "viewer")
	owner := operator.New(client, "owner")
	mail := operator.KindDeclaration{Kind: "mail", Change: operator.KindChange{
		Queue: new("post"), Priority: new(int16(5)), MaxAttempts: new(3), Timeout: new(time.Minute), BackoffBase: new(10 * time.Second),
		BackoffMax: new(time.Hour), Owner: new("team-mail"), Runbook: new("https://example.com"),
	}}
	changed, err := owner.DeclareKinds(ctx, mail, operator.KindDeclaration{Kind: "none"})
	require.NoError(t, err)
	require.Equal(t, []operator.KindDeclared{{"mail", 1}}, changed)
	stored := monitor.KindSettings{
		Queue: "post", Priority: 5, MaxAttempts: 3, Timeout: time.Minute, BackoffBase: 10 * time.Second, BackoffMax: time.Hour,
		Owner: "team-mail", Runbook: "https://example.com",
	}
	require.Equal(t, stored, settingsOf(t, client, "mail"))
	require.Zero(t, settingsOf(t, client, "none"), "it has no row")
	same := operator.KindDeclaration{Kind: "mail", Change: operator.KindChange{Owner: new("team-mail")}}
	defaults := operator.KindDeclaration{Kind: "none", Change: operator.KindChange{
		Queue: new(jobq.DefaultQueue), Priority: new(int16(0)), MaxAttempts: new(jobq.DefaultMaxAttempts), Timeout: new(time.Duration(0)),
		BackoffBase: new(jobq.DefaultBackoffBase), BackoffMax: new(time.Duration(0)), Owner: new(""),
	}}
	for _, client := range as {
		changed, err = operator.New(client, "program").DeclareKinds(ctx, mail, same, defaults)
		require.NoError(t, err)
		require.Empty(t, changed)
		_, err = operator.New(client, "program").SetKind(ctx, "mail", operator.KindChange{MaxAttempts: new(4)})
		require.ErrorContains(t, err, "jobq_admin")
	}
	changed, err = owner.DeclareKinds(ctx,
		operator.KindDeclaration{Kind: "mail", Change: operator.KindChange{MaxAttempts: new(jobq.DefaultMaxAttempts), Timeout: new(time.Duration(0))}},
		operator.KindDeclaration{Kind: "wrong", Change: operator.KindChange{MaxAttempts: new(40_000)}}, mail)
	require.Equal(t, []operator.KindDeclared{{"mail", 2}}, changed)
	require.ErrorIs(t, err, jobq.ErrInvalid)
	require.ErrorContains(t, err, "max_attempts must be 1 to 32767, not 40000")
	var of *operator.KindDeclarationError
	require.True(t, errors.As(err, &of))
	require.Equal(t, "wrong", of.Kind)
	stored.MaxAttempts, stored.Timeout = jobq.DefaultMaxAttempts, 0
	require.Equal(t, stored, settingsOf(t, client, "mail"))
	_, err = owner.Undo(ctx, 2)
	require.NoError(t, err)
	require.Equal(t, 3, settingsOf(t, client, "mail").MaxAttempts)
	for kind, change := range map[string]operator.KindChange{
		"": {Queue: new("q")}, "a\x00": {}, strings.Repeat("k", 129): {Queue: new("q")}, "a": {Queue: new("q\x00")}, "b": {Owner: new("\xff")},
		"c": {Runbook: new(strings.Repeat("r", 1025))}, "d": {Timeout: new(-time.Second)}, "e": {BackoffBase: new(11 * 365 * 24 * time.Hour)},
	} {
		_, err = owner.SetKind(ctx, kind, change)
		require.ErrorIs(t, err, jobq.ErrInvalid, kind)
	}
}

// letter is a kind with defaults of its own in Go.
type letter struct{}

func (letter) Kind() string { return "letter" }

func (letter) EnqueueDefaults() jobq.EnqueueOptions {
	return jobq.EnqueueOptions{Priority: 2, MaxAttempts: 7}
}

// From Go, what the caller gives comes first, then the defaults of the args' type, then those of the kind in the database,
// in each way to enqueue.
func TestKindSettingsFromGo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	for _, kind := range []string{"letter", "parcel"} {
		_, err := operator.New(client, "ann").SetKind(ctx, kind, operator.KindChange{
			Queue: new("post"), Priority: new(int16(5)), MaxAttempts: new(3), Timeout: new(time.Minute), BackoffBase: new(10 * time.Second), BackoffMax: new(time.Hour),
		})
		require.NoError(t, err)
	}
	parcel := jobq.RawArgs{Name: "parcel"}
	given := jobq.EnqueueOptions{Queue: "express", Priority: -1, MaxAttempts: 25, Timeout: time.Second}
	keyed := jobq.EnqueueOptions{UniqueKey: "a"}
	var ids []int64
	for _, job := range []jobq.EnqueueParams{{Args: letter{}}, {Args: parcel}, {Args: parcel, EnqueueOptions: given}, {Args: parcel, EnqueueOptions: keyed}} {
		one, err := client.Enqueue(ctx, job.Args, &job.EnqueueOptions)
		require.NoError(t, err)
		ids = append(ids, one.ID)
	}
	keyed.UniqueKey = "b"
	many, err := client.EnqueueMany(ctx, []jobq.EnqueueParams{{Args: letter{}}, {Args: parcel}, {Args: parcel, EnqueueOptions: given}, {Args: parcel, EnqueueOptions: keyed}, {Args: jobq.RawArgs{Name: "other"}}})
	require.NoError(t, err)
	for _, one := range many {
		ids = append(ids, one.ID)
	}
	var has []string
	for _, id := range ids {
		var text string
		require.NoError(t, client.Pool().QueryRow(ctx, "select concat_ws(' ', queue, priority, max_attempts, timeout, backoff_base, backoff_max) from jobq.pending where id = $1", id).Scan(&text))
		has = append(has, text)
	}
	four := []string{"post 2 7 00:01:00 00:00:10 01:00:00", "post 5 3 00:01:00 00:00:10 01:00:00", "express -1 25 00:00:01 00:00:10 01:00:00", "post 5 3 00:01:00 00:00:10 01:00:00"}
	require.Equal(t, append(append(append([]string{}, four...), four...), "default 0 25"), has)
}

// An application that declares a schedule again changes nothing, whatever its kind has been set to since, and the monitor
// shows what the next job will have.
func TestKindSettingsOfADeclaredSchedule(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	d := operator.Declaration{App: "a", Schedules: []jobq.Schedule{{Name: "s", Every: time.Hour, Kind: "mail", MaxAttempts: 4}}}
	u.declared(d)
	_, err := u.SetKind(u.ctx, "mail", operator.KindChange{Queue: new("post"), Priority: new(int16(5)), MaxAttempts: new(3), BackoffBase: new(10 * time.Second)})
	require.NoError(t, err)
	require.Empty(t, u.declared(d).Changed)
	s, err := u.m.Schedule(u.ctx, "s")
	require.NoError(t, err)
	require.Equal(t, []any{"post", int16(5), 4, 10 * time.Second}, []any{s.Queue, s.Priority, s.MaxAttempts, s.BackoffBase})
	d.Schedules[0].Queue = jobq.DefaultQueue
	require.Equal(t, []string{"s"}, u.declared(d).Changed, "said, it wins over the kind's")
	s, err = u.m.Schedule(u.ctx, "s")
	require.NoError(t, err)
	require.Equal(t, jobq.DefaultQueue, s.Queue)
}
