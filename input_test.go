package jobq_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// What the database cannot take is refused in words that name the field and
// the limit, and nothing is stored.
func TestInvalidInput(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	text := func(length int) json.RawMessage {
		return json.RawMessage(`"` + strings.Repeat("x", length) + `"`)
	}
	// A JSON string of n characters takes n + 8 bytes as jsonb.
	const mebibyte, overhead = 1 << 20, 12
	for name, test := range map[string]struct {
		job  jobq.EnqueueParams
		want string
	}{
		"no kind":            {jobtest.Raw("", `{}`, nil), "kind must be 1 to 128 characters"},
		"long kind":          {jobtest.Raw(strings.Repeat("k", 129), `{}`, nil), "kind must be 1 to 128 characters"},
		"long queue":         {jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{Queue: strings.Repeat("q", 129)}), "queue must be 1 to 128 characters"},
		"long unique key":    {jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{UniqueKey: strings.Repeat("u", 256)}), "unique_key must be 1 to 255 characters"},
		"NUL in args":        {jobtest.Raw("k", `{"a":"\u0000"}`, nil), "NUL"},
		"invalid UTF-8":      {jobtest.Raw("k", "\"\xff\"", nil), "UTF-8"},
		"args not JSON":      {jobtest.Raw("k", `{"a"`, nil), "jobs[0]: args: "},
		"args too large":     {jobtest.Raw("k", string(text(mebibyte)), nil), "args must be at most"},
		"args too deep":      {jobtest.Raw("k", strings.Repeat("[", 20000)+strings.Repeat("]", 20000), nil), "depth"},
		"number too large":   {jobtest.Raw("k", `1e400000`, nil), "out of range"},
		"negative attempts":  {jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{MaxAttempts: -1}), "max_attempts must be 1 to 32767"},
		"too many lost":      {jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{MaxLost: 32768}), "max_lost must be 1 to 32767"},
		"too many attempts":  {jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{MaxAttempts: 32768}), "max_attempts must be 1 to 32767"},
		"negative timeout":   {jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{Timeout: -1 * time.Second}), "timeout must be positive"},
		"too many tags":      {jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{Tags: make([]string, 33)}), "tags must be at most 32"},
		"metadata too large": {jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{Metadata: text(64 << 10)}), "metadata must be at most 64 KiB"},
		"no args":            {jobq.EnqueueParams{}, "jobs[0]: args are nil"},
	} {
		_, err := client.EnqueueMany(ctx, []jobq.EnqueueParams{test.job})
		require.ErrorIs(t, err, jobq.ErrInvalid, name)
		require.ErrorContains(t, err, test.want, name)
	}
	page, err := client.List(ctx, jobq.Filter{})
	require.NoError(t, err)
	require.Empty(t, page.Jobs)

	// The limits themselves are allowed.
	_, err = client.EnqueueMany(ctx, []jobq.EnqueueParams{jobtest.Raw(strings.Repeat("é", 128), string(text(mebibyte-overhead)), &jobq.EnqueueOptions{
		Queue: strings.Repeat("q", 128), MaxAttempts: 32767, MaxLost: 32767, Priority: -32768, Tags: make([]string, 32), UniqueKey: strings.Repeat("u", 255),
	})})
	require.NoError(t, err)

	// The limit on args is one that can be moved.
	_, err = client.Pool().Exec(ctx, "create or replace function jobq.args_bytes_max() returns integer language sql stable parallel safe return 100")
	require.NoError(t, err)
	_, err = client.EnqueueMany(ctx, []jobq.EnqueueParams{jobtest.Raw("k", string(text(200)), nil)})
	require.ErrorContains(t, err, "args must be at most")
}

// Any JSON is kept as it is, and what PostgreSQL cannot keep as JSON is
// refused, not changed.
func TestArgsRoundTrip(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	for _, args := range []string{
		`null`, `true`, `0`, `-1.5e3`, `""`, `"\"\\\u00e9\ud83d\ude00\t\u001b"`, `[]`, `{}`, `[null, [], {"a": {"b": [1]}}]`,
		`12345678901234567890123456789`, `0.1234567890123456789012345678901234567890`, `"jobq.pending"`, `"$1 '' \\"`,
	} {
		enqueued, err := client.EnqueueMany(ctx, []jobq.EnqueueParams{jobtest.Raw("k", args, nil)})
		require.NoError(t, err, args)
		job, err := client.Get(ctx, enqueued[0].ID)
		require.NoError(t, err)
		require.JSONEq(t, args, string(job.Args))
		if args[0] >= '0' && args[0] <= '9' {
			require.Equal(t, args, string(job.Args), "a number keeps all of its digits")
		}
	}
	job, err := client.Enqueue(ctx, jobq.RawArgs{Name: "k"}, nil)
	require.NoError(t, err)
	got, err := client.Get(ctx, job.ID)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(got.Args))
}

// Text that is not text is refused wherever it comes in.
func TestInvalidText(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	for name, text := range map[string]string{"NUL": "a\x00b", "invalid UTF-8": "a\xffb"} {
		for field, job := range map[string]jobq.EnqueueParams{
			"kind":       jobtest.Raw(text, `{}`, nil),
			"args":       jobtest.Raw("k", `"`+text+`"`, nil),
			"queue":      jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{Queue: text}),
			"unique key": jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{UniqueKey: text}),
			"tags":       jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{Tags: []string{text}}),
			"metadata":   jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{Metadata: json.RawMessage(`"` + text + `"`)}),
		} {
			_, err := client.EnqueueMany(ctx, []jobq.EnqueueParams{jobtest.Raw("k", `{}`, nil), job})
			require.ErrorIs(t, err, jobq.ErrInvalid, "%s in %s", name, field)
		}
		_, err := operator.New(client, "test").PauseQueue(ctx, text, "")
		require.ErrorIs(t, err, jobq.ErrInvalid)
		_, err = client.List(ctx, jobq.Filter{Queue: text})
		require.ErrorIs(t, err, jobq.ErrInvalid)
	}
	jobtest.RequireNothingStored(t, client)
}

// Moments and spans beyond what PostgreSQL can keep, or JSON can say, are refused,
// not wrapped around.
func TestExtremeTimes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	for name, options := range map[string]jobq.EnqueueOptions{
		"year 10000":         {RunAt: time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -3600))},
		"year 0":             {RunAt: time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC)},
		"year 300000":        {RunAt: time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"year 1000000":       {RunAt: time.Date(1_000_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"year -10000":        {RunAt: time.Date(-10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"the last moment":    {RunAt: time.Unix(1<<62, 0)},
		"292 years, timeout": {Timeout: 1<<63 - 1},
		"292 years, backoff": {BackoffBase: 1<<63 - 1},
		"a nanosecond":       {Timeout: 1},
	} {
		_, err := client.Enqueue(ctx, jobtest.Greeting{}, &options)
		require.ErrorIs(t, err, jobq.ErrInvalid, name)
	}
	jobtest.RequireNothingStored(t, client)
	for _, runAt := range []time.Time{time.Unix(0, 0), time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} {
		job, err := client.Get(ctx, jobtest.Enqueue(t, client, &jobq.EnqueueOptions{RunAt: runAt}))
		require.NoError(t, err)
		require.True(t, runAt.Equal(job.RunAt), "%s is stored as %s", runAt, job.RunAt)
	}
	id := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{Timeout: 1500 * time.Microsecond})
	beyond := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := operator.New(client, "test").Edit(ctx, operator.JobChange{RunAt: &beyond}, operator.Target{ID: id})
	require.ErrorIs(t, err, jobq.ErrInvalid)
	_, err = client.Pool().Exec(ctx, "select * from jobq.act('me', 'edit', array[$1]::bigint[], null, null, null, null, '{\"run_at\": \"10000-01-01\"}')", id)
	require.ErrorContains(t, err, "run_at must be in the years 1 to 9999")
	job, err := client.Get(ctx, id)
	require.NoError(t, err)
	require.GreaterOrEqual(t, job.Timeout, time.Millisecond)
	id = jobtest.Enqueue(t, client, &jobq.EnqueueOptions{Timeout: 100 * time.Microsecond})
	job, err = client.Get(ctx, id)
	require.NoError(t, err)
	require.Positive(t, job.Timeout, "a short timeout is not none")
}
