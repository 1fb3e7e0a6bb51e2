package operator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// Settings change one by one, and those that cannot go together are refused
// with the reason, and nothing is changed.
func TestSetQueue(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	pointer := func(duration time.Duration) *time.Duration { return &duration }
	progress, head, yes := jobq.HeartbeatProgress, jobq.RedeliveryHead, true
	for _, nothing := range []operator.QueueChange{{}, {Lease: pointer(time.Minute), ResetOnReap: new(false)}} {
		id, err := operator.New(client, "test").SetQueue(ctx, "misspelt", nothing)
		require.NoError(t, err)
		require.Zero(t, id)
		queues, err := monitor.New(client).Queues(ctx)
		require.NoError(t, err)
		require.Empty(t, queues, "defaults that are set leave no trace of the name")
	}
	require.NoError(t, jobtest.ErrorOf(operator.New(client, "test").SetQueue(ctx, "q", operator.QueueChange{
		Lease: pointer(time.Minute), ExtendEvery: pointer(20 * time.Second), StaleGrace: pointer(time.Second),
		RedeliveryDelay: pointer(time.Second), ResetOnReap: &yes, AgeAfter: pointer(0),
	})))
	require.NoError(t, jobtest.ErrorOf(operator.New(client, "test").SetQueue(ctx, "q", operator.QueueChange{Heartbeat: &progress})))
	want := monitor.QueueSettings{
		Lease: time.Minute, ExtendEvery: 20 * time.Second, Heartbeat: progress, StaleGrace: time.Second,
		Redelivery: jobq.RedeliveryTail, RedeliveryDelay: time.Second, ResetOnReap: true,
	}
	settings := func() monitor.QueueSettings {
		queues, err := monitor.New(client).Queues(ctx)
		require.NoError(t, err)
		require.Len(t, queues, 1)
		return queues[0].QueueSettings
	}
	require.Equal(t, want, settings())
	wrong := jobq.Heartbeat("wrong")
	for reason, change := range map[string]operator.QueueChange{
		"extend_every must be positive and at most half of lease": {ExtendEvery: pointer(31 * time.Second)},
		"redelivery_delay needs redelivery tail":                  {Redelivery: &head},
		"heartbeat must be ticker, progress, both or off":         {Heartbeat: &wrong},
		"stale_grace must be 0 to 30 days":                        {StaleGrace: pointer(-time.Second)},
		"lease must be 1 second to 30 days":                       {Lease: pointer(0)},
		"age_after must be 0 to 30 days":                          {AgeAfter: pointer(-time.Second)},
		"retention must be 1 day to 10 years":                     {Retention: pointer(23 * time.Hour)},
		"failed_retention must be 1 day to 10 years":              {FailedRetention: pointer(4000 * 24 * time.Hour)},
	} {
		_, err := operator.New(client, "test").SetQueue(ctx, "q", change)
		require.ErrorIs(t, err, jobq.ErrInvalid, reason)
		require.ErrorContains(t, err, reason)
		require.Equal(t, want, settings(), reason)
	}
	want.Lease, want.ExtendEvery = 30*time.Second, 10*time.Second
	require.NoError(t, jobtest.ErrorOf(operator.New(client, "test").SetQueue(ctx, "q", operator.QueueChange{Lease: pointer(30 * time.Second)})))
	require.Equal(t, want, settings(), "the extend_every that no longer fits is a third again")
}

// A limit and a rate are set and taken away on their own, and an undo brings back what was.
func TestSetQueueLimits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	o := operator.New(client, "test")
	settings := func() (int, *jobq.Rate) {
		queues, err := monitor.New(client).Queues(ctx)
		require.NoError(t, err)
		require.Len(t, queues, 1)
		return queues[0].MaxRunning, queues[0].Rate
	}
	_, err := o.SetQueue(ctx, "q", operator.QueueChange{MaxRunning: new(3), Rate: &jobq.Rate{Jobs: 100, Period: time.Second}})
	require.NoError(t, err)
	limit, rate := settings()
	require.Equal(t, 3, limit)
	require.Equal(t, &jobq.Rate{Jobs: 100, Period: time.Second, Burst: 10}, rate, "with the default burst")
	id, err := o.SetQueue(ctx, "q", operator.QueueChange{Rate: new(jobq.Rate)})
	require.NoError(t, err)
	limit, rate = settings()
	require.Equal(t, 3, limit)
	require.Nil(t, rate)
	_, err = client.Pool().Exec(ctx, "select jobq.undo('test', $1)", id)
	require.NoError(t, err)
	_, rate = settings()
	require.Equal(t, 100, rate.Jobs)
	keyRate := func() *jobq.Rate {
		queues, err := monitor.New(client).Queues(ctx)
		require.NoError(t, err)
		return queues[0].KeyRate
	}
	id, err = o.SetQueue(ctx, "q", operator.QueueChange{KeyRate: &jobq.Rate{Jobs: 5, Period: time.Minute, Burst: 2}})
	require.NoError(t, err)
	require.Equal(t, &jobq.Rate{Jobs: 5, Period: time.Minute, Burst: 2}, keyRate())
	_, rate = settings()
	require.Equal(t, 100, rate.Jobs, "another rate")
	_, err = client.Pool().Exec(ctx, "select jobq.undo('test', $1)", id)
	require.NoError(t, err)
	require.Nil(t, keyRate())
	separator := func() string {
		queues, err := monitor.New(client).Queues(ctx)
		require.NoError(t, err)
		return queues[0].KeySeparator
	}
	require.NoError(t, jobtest.ErrorOf(o.SetQueue(ctx, "q", operator.QueueChange{KeySeparator: new(" / ")})))
	require.Equal(t, " / ", separator(), "as it was given, with its spaces")
	require.NoError(t, jobtest.ErrorOf(o.SetQueue(ctx, "q", operator.QueueChange{KeySeparator: new("→→→→→→→→")})))
	require.Equal(t, "→→→→→→→→", separator(), "8 characters, not bytes")
	again, err := o.SetQueue(ctx, "q", operator.QueueChange{KeySeparator: new("→→→→→→→→")})
	require.NoError(t, err)
	require.Zero(t, again)
	id, err = o.SetQueue(ctx, "q", operator.QueueChange{KeySeparator: new("")})
	require.NoError(t, err)
	require.Empty(t, separator())
	_, err = client.Pool().Exec(ctx, "select jobq.undo('test', $1)", id)
	require.NoError(t, err)
	require.Equal(t, "→→→→→→→→", separator())
	for reason, change := range map[string]operator.QueueChange{
		"key_separator must be 1 to 8 characters":         {KeySeparator: new("123456789")},
		"key_separator must be valid UTF-8":               {KeySeparator: new("\x00")},
		"max_running must be 1 to 1000000":                {MaxRunning: new(-1)},
		"rate_period must be 1 second to 30 days":         {Rate: &jobq.Rate{Jobs: 1, Period: time.Millisecond}},
		"rate_jobs and rate_period come together":         {Rate: &jobq.Rate{Jobs: 1}},
		"rate_burst must be 1 to 1000000":                 {Rate: &jobq.Rate{Jobs: 1, Period: time.Second, Burst: -1}},
		"key_rate_jobs must be 1 to 1000000":              {KeyRate: &jobq.Rate{Jobs: -1, Period: time.Second}},
		"key_rate_period must be 1 second to 30 days":     {KeyRate: &jobq.Rate{Jobs: 1, Period: time.Millisecond}},
		"key_rate_jobs and key_rate_period come together": {KeyRate: &jobq.Rate{Jobs: 1}},
		"key_rate_burst must be 1 to 1000000":             {KeyRate: &jobq.Rate{Jobs: 1, Period: time.Second, Burst: -1}},
	} {
		_, err := o.SetQueue(ctx, "q", change)
		require.ErrorIs(t, err, jobq.ErrInvalid, reason)
		require.ErrorContains(t, err, reason)
	}
}

// Retentions of a queue, and that of failed jobs of all queues, are set and taken away on their own, stored in days, and put back
// by an undo.
func TestSetRetention(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	o, m := operator.New(client, "test"), monitor.New(client)
	const day = 24 * time.Hour
	kept := func() []time.Duration {
		queues, err := m.Queues(ctx)
		require.NoError(t, err)
		settings, err := m.Settings(ctx)
		require.NoError(t, err)
		var queue monitor.QueueSettings
		if len(queues) > 0 {
			queue = queues[0].QueueSettings
		}
		completed, failed := queue.Kept(settings)
		return []time.Duration{completed / day, failed / day}
	}
	require.Equal(t, []time.Duration{7, 7}, kept())
	all, err := o.SetSettings(ctx, operator.SettingsChange{FailedRetention: new(30 * day)})
	require.NoError(t, err)
	require.Equal(t, []time.Duration{7, 30}, kept())
	first, err := o.SetQueue(ctx, "q", operator.QueueChange{Retention: new(90 * day)})
	require.NoError(t, err)
	require.Equal(t, []time.Duration{90, 90}, kept(), "what a queue says counts before what all say")
	second, err := o.SetQueue(ctx, "q", operator.QueueChange{FailedRetention: new(365 * day), Retention: new(time.Duration)})
	require.NoError(t, err)
	require.Equal(t, []time.Duration{7, 365}, kept())
	entries, err := m.Audit(ctx, 0, 1)
	require.NoError(t, err)
	require.JSONEq(t, `{"retention": null, "failed_retention": "365 days"}`, string(entries[0].Change))
	same, err := o.SetQueue(ctx, "q", operator.QueueChange{FailedRetention: new(365 * day)})
	require.NoError(t, err)
	require.Zero(t, same)
	_, err = o.Undo(ctx, first)
	require.ErrorIs(t, err, jobq.ErrConflict, "another has changed it meanwhile")
	_, err = o.Undo(ctx, second)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{90, 90}, kept())
	_, err = o.SetQueue(ctx, "q", operator.QueueChange{Retention: new(time.Duration)})
	require.NoError(t, err)
	require.Equal(t, []time.Duration{7, 30}, kept())
	_, err = o.Undo(ctx, all)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{7, 7}, kept(), "there was none before")
	for _, wrong := range []time.Duration{-day, 23 * time.Hour, 3661 * day} {
		_, err = o.SetSettings(ctx, operator.SettingsChange{FailedRetention: &wrong})
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, "failed_retention must be 1 day to 10 years, or 0 for as long as finished_retention, not ")
	}
}
