package jobq_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// A refusal reads as the operation, the error and the reason, once each: no
// SQLSTATE, which is for programs, no place of a job where there is only one, and
// always the name of the field.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	one := func(options jobq.EnqueueOptions) error {
		return jobtest.ErrorOf(client.Enqueue(ctx, jobtest.Greeting{}, &options))
	}
	many := func(options jobq.EnqueueOptions) error {
		return jobtest.ErrorOf(client.EnqueueMany(ctx, []jobq.EnqueueParams{jobtest.Raw("k", "{}", nil), jobtest.Raw("k", "{}", &options)}))
	}
	running := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "runs"})
	require.NoError(t, pgtest.MakeRunning(ctx, client.Pool(), running))
	ended := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "taken"})
	_, err := client.Cancel(ctx, ended)
	require.NoError(t, err)
	jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "taken"})
	for want, err := range map[string]error{
		"enqueue: invalid value: max_attempts must be 1 to 32767, not -1":                                           one(jobq.EnqueueOptions{MaxAttempts: -1}),
		"enqueue: invalid value: queue must be 1 to 128 characters, not 129":                                        one(jobq.EnqueueOptions{Queue: strings.Repeat("q", 129)}),
		"enqueue: invalid value: unique_key must be 1 to 255 characters, not 256":                                   one(jobq.EnqueueOptions{UniqueKey: strings.Repeat("u", 256)}),
		"enqueue: invalid value: jobs[1]: queue must be 1 to 128 characters, not 129":                               many(jobq.EnqueueOptions{Queue: strings.Repeat("q", 129)}),
		"enqueue: invalid value: jobs[1]: max_attempts must be 1 to 32767, not 40000":                               many(jobq.EnqueueOptions{MaxAttempts: 40000}),
		"enqueue: invalid value: metadata must be JSON: unexpected end of JSON input":                               one(jobq.EnqueueOptions{Metadata: json.RawMessage(`{"a"`)}),
		"enqueue: invalid value: jobs[1]: metadata must be JSON: unexpected end of JSON input":                      many(jobq.EnqueueOptions{Metadata: json.RawMessage(`{"a"`)}),
		"enqueue: invalid value: metadata must not contain the NUL character (\\u0000): PostgreSQL cannot store it": one(jobq.EnqueueOptions{Metadata: json.RawMessage(`"\u0000"`)}),
		"enqueue: invalid value: tags must be valid UTF-8 without NUL bytes, not \"a\\x00b\"":                       one(jobq.EnqueueOptions{Tags: []string{"a\x00b"}}),
		"enqueue: invalid value: queue must be valid UTF-8 without NUL bytes, not \"a\\xff\"":                       one(jobq.EnqueueOptions{Queue: "a\xff"}),
		"cancel job 9999: no such job": jobtest.ErrorOf(client.Cancel(ctx, 9999)),
	} {
		require.EqualError(t, err, want)
	}
	require.NoError(t, one(jobq.EnqueueOptions{Metadata: json.RawMessage(`"\\u0000"`)}), "a backslash, and no NUL")
}

// What is no refusal of ours has the SQLSTATE, and has it once.
func TestSQLStateOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	calls := map[string]func(*jobq.Client) error{
		"enqueue": func(c *jobq.Client) error { return jobtest.ErrorOf(c.Enqueue(ctx, jobtest.Greeting{}, nil)) },
		"unique": func(c *jobq.Client) error {
			return jobtest.ErrorOf(c.Enqueue(ctx, jobtest.Greeting{}, &jobq.EnqueueOptions{UniqueKey: "k"}))
		},
		"act": func(c *jobq.Client) error {
			return jobtest.ErrorOf(operator.New(c, "test").Act(ctx, jobq.ActionCancel, operator.Target{ID: 1}))
		},
		"requeue": func(c *jobq.Client) error { return jobtest.Requeue(c, 1) },
		"pause":   func(c *jobq.Client) error { return jobtest.ErrorOf(operator.New(c, "test").PauseQueue(ctx, "q", "")) },
		"set": func(c *jobq.Client) error {
			return jobtest.ErrorOf(operator.New(c, "test").SetQueue(ctx, "q", operator.QueueChange{MaxRunning: new(3)}))
		},
	}
	for name, setting := range map[string][2]string{
		"read-only":         {"default_transaction_read_only", "on"},
		"another role":      {"role", "pg_monitor"},
		"statement timeout": {"statement_timeout", "1"},
	} {
		config := client.Pool().Config()
		config.ConnConfig.RuntimeParams[setting[0]] = setting[1]
		pool, err := pgxpool.NewWithConfig(ctx, config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		other, err := jobq.NewClient(pool, nil)
		require.NoError(t, err)
		for operation, call := range calls {
			err := call(other)
			if name == "statement timeout" && err == nil {
				continue // quick enough
			}
			require.Error(t, err, "%s, %s", name, operation)
			require.LessOrEqual(t, strings.Count(err.Error(), "SQLSTATE"), 1, err.Error())
		}
	}
}

// An attempt to connect that fails in the same way at each address of a host, or
// with and without TLS, says so once, in one line.
func TestConnectErrorOnce(t *testing.T) {
	t.Parallel()
	url := jobtest.Client(t).Pool().Config().ConnString()
	config, err := pgxpool.ParseConfig(regexp.MustCompile(`host=([^&]*)&port=(\d+)`).ReplaceAllString(url, "host=$1,$1&port=$2,$2"))
	require.NoError(t, err)
	config.ConnConfig.Database = "template0" // which takes no connections
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	_, err = client.Enqueue(context.Background(), jobtest.Greeting{}, nil)
	require.NotErrorIs(t, err, jobq.ErrConflict)
	require.Equal(t, 1, strings.Count(err.Error(), "SQLSTATE"), err)
	require.NotContains(t, err.Error(), "\n")
	var answer *pgconn.PgError
	require.ErrorAs(t, err, &answer)
}
