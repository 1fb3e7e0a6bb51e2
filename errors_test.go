package jobq_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A refusal reads as the operation, the error and the reason, once each: no
// SQLSTATE, which is for programs, no place of a job where there is only one, and
// always the name of the field.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	one := func(options jobq.EnqueueOptions) error { return second(client.Enqueue(ctx, greeting{}, &options)) }
	many := func(options jobq.EnqueueOptions) error {
		return second(client.EnqueueMany(ctx, []jobq.EnqueueParams{raw("k", "{}", nil), raw("k", "{}", &options)}))
	}
	running := enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "runs"})
	require.NoError(t, pgtest.MakeRunning(ctx, client.Pool(), running))
	ended := enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "taken"})
	_, err := client.Cancel(ctx, ended)
	require.NoError(t, err)
	enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "taken"})
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
		"requeue job 9999: no such job":             client.Requeue(ctx, 9999),
		"delete job 9999: no such job":              client.Delete(ctx, 9999),
		"cancel job 9999: no such job":              second(client.Cancel(ctx, 9999)),
		"clone job 9999: no such job":               second(client.Clone(ctx, 9999, jobq.JobChange{})),
		"undo action 9999: no such action":          second(client.Undo(ctx, 9999)),
		"requeue job 1: conflict: job 1 is running": client.Requeue(ctx, running),
		"delete job 1: conflict: job 1 is running":  client.Delete(ctx, running),
		"requeue job 2: unique key is held by another job: unique_key 'taken' of kind 'greeting' is held by unfinished job 3": client.Requeue(ctx, ended),
	} {
		require.EqualError(t, err, want)
	}
	require.NoError(t, one(jobq.EnqueueOptions{Metadata: json.RawMessage(`"\\u0000"`)}), "a backslash, and no NUL")
}

// What is no refusal of ours has the SQLSTATE, and has it once.
func TestSQLStateOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	calls := map[string]func(*jobq.Client) error{
		"enqueue": func(c *jobq.Client) error { return second(c.Enqueue(ctx, greeting{}, nil)) },
		"unique": func(c *jobq.Client) error {
			return second(c.Enqueue(ctx, greeting{}, &jobq.EnqueueOptions{UniqueKey: "k"}))
		},
		"act":     func(c *jobq.Client) error { return second(c.Act(ctx, jobq.ActionCancel, jobq.Target{ID: 1})) },
		"requeue": func(c *jobq.Client) error { return c.Requeue(ctx, 1) },
		"pause":   func(c *jobq.Client) error { return second(c.PauseQueue(ctx, "q", "", "")) },
		"set":     func(c *jobq.Client) error { return c.SetQueue(ctx, "q", jobq.QueueChange{}) },
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
	url := newClient(t).Pool().Config().ConnString()
	config, err := pgxpool.ParseConfig(regexp.MustCompile(`host=([^&]*)&port=(\d+)`).ReplaceAllString(url, "host=$1,$1&port=$2,$2"))
	require.NoError(t, err)
	config.ConnConfig.Database = "template0" // which takes no connections
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	_, err = client.Enqueue(context.Background(), greeting{}, nil)
	require.NotErrorIs(t, err, jobq.ErrConflict)
	require.Equal(t, 1, strings.Count(err.Error(), "SQLSTATE"), err)
	require.NotContains(t, err.Error(), "\n")
	var answer *pgconn.PgError
	require.ErrorAs(t, err, &answer)
}

// Every code with which the SQL functions refuse stands for an error in Go, and
// docs/sql.md explains it. Nothing else is raised, but by the triggers of a plain
// INSERT, and to whoever is to try again.
func TestCodes(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("docs/sql.md")
	require.NoError(t, err)
	files, err := filepath.Glob("sql/migrations/*.up.sql")
	require.NoError(t, err)
	used := make(map[string]bool)
	for _, name := range files {
		content, err := os.ReadFile(name) // #nosec G304 -- our own
		require.NoError(t, err)
		for _, raised := range regexp.MustCompile(`raise (\S+(?: '\w+')?) using`).FindAllStringSubmatch(string(content), -1) {
			if raised[1] == "unique_violation" {
				require.Contains(t, name, "triggers")
				continue
			}
			// To the janitor, as a lock_timeout is; and for a job that moves too fast to be found.
			if raised[1] == "lock_not_available" || raised[1] == "serialization_failure" {
				require.Equal(t, 1, strings.Count(string(content), raised[0]))
				continue
			}
			require.Regexp(t, `^sqlstate 'JQ\d{3}'$`, raised[1], name)
		}
		for _, code := range regexp.MustCompile(`'(JQ\d+)'`).FindAllStringSubmatch(string(content), -1) {
			used[code[1]] = true
		}
	}
	require.Len(t, used, 4)
	for code := range used {
		require.Error(t, jobq.Code(code).Err(), code)
		require.Contains(t, string(docs), "`"+code+"`")
	}
	require.NoError(t, jobq.Code("").Err())
}

// A code of a later version leaves the reason, and says nothing about the code.
func TestErrOfUnknownCode(t *testing.T) {
	t.Parallel()
	require.NoError(t, jobq.ActedJob{}.Err())
	require.EqualError(t, jobq.ActedJob{Problem: "it is frozen", Code: "JQ999"}.Err(), "it is frozen")
	require.EqualError(t, jobq.ActedJob{Problem: "it is frozen"}.Err(), "it is frozen")
	require.EqualError(t, jobq.ActedJob{Problem: "no job 7", Code: jobq.CodeNotFound}.Err(), "no job 7")
	require.EqualError(t, jobq.ActedJob{Problem: "it runs", Code: jobq.CodeConflict}.Err(), "conflict: it runs")
}
