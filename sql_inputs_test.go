package jobq_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
)

// What is no JSON can only come as text, and what is JSON but not jsonb as json too.
const notJSON, notJSONB = "JSON that PostgreSQL can store", "JSON that PostgreSQL can store:"

// badValues are values that no argument of that name takes, as SQL, with what
// the refusal must say of the limit. JSON is as text, for the type of the argument.
var badValues = map[string]map[string]string{
	"kind":          {"''": "1 to 128 characters, not 0", "repeat('k', 129)": "1 to 128 characters, not 129", "null": "1 to 128 characters, not null"},
	"queue":         {"''": "1 to 128 characters, not 0", "repeat('q', 2000000)": "1 to 128 characters, not 2000000"},
	"priority":      {"-32769": "-32768 to 32767, not -32769", "9223372036854775807": "-32768 to 32767, not 9223372036854775807"},
	"max_attempts":  {"0": "1 to 32767, not 0", "3000000000": "1 to 32767, not 3000000000"},
	"max_lost":      {"0": "1 to 32767, not 0", "3000000000": "1 to 32767, not 3000000000"},
	"run_at":        {"timestamptz 'infinity'": "years 1 to 9999", "timestamptz '10000-01-01 00:00+00'": "years 1 to 9999", "timestamptz '0001-01-01 BC'": "years 1 to 9999"},
	"unique_key":    {"''": "1 to 255 characters, not 0", "repeat(E'a\\n', 300)": "1 to 255 characters, not 600"},
	"partition_key": {"''": "1 to 255 characters, not 0", "repeat('k', 256)": "1 to 255 characters, not 256"},
	"timeout":       {"interval '0'": "positive, at most 10 years", "interval '10 years 1 day'": "positive, at most 10 years"},
	"backoff_base":  {"interval '-1 s'": "positive, at most 10 years"},
	"backoff_max":   {"interval '-1 s'": "positive, at most 10 years", "interval '1000 years'": "positive, at most 10 years"},
	"tags": {
		"array_fill('t'::text, array[33])": "at most 32", "array['a', null]": "without nulls", "array[repeat('t', 9000)]": "8 KiB",
		"array[array['a'], array['b']]": "not a list of lists",
	},
	"metadata": {"to_json(repeat('x', 70000))::text": "64 KiB", "'{'": notJSON},
	"args": {
		"to_json(repeat('x', 1100000))::text": "at most 1048576 bytes", "'{\"a\"'": notJSON, "E'{\"a\\nb\": 1}'": notJSON,
		`'{"a": "\u0000"}'`: notJSONB, "'1e400000'": notJSONB, "repeat('[', 20000) || repeat(']', 20000)": notJSON, "''": notJSON,
	},
	"jobs": {
		"null": "array of objects", "'{}'": "array of objects", "'[5]'": "jobs[0]: must be a JSON object", "'[{\"kind\": \"k\"}, null]'": "jobs[1]: must be a JSON object",
		"'[{\"kind\"'": notJSON, "(select jsonb_agg(i)::text from generate_series(1, 100001) i)": "at most 100000",
	},
	"after":         {"array[0]": "must be ids of jobs, not 0", "array[null::bigint]": "must be ids of jobs, not null", "array[-1]": "must be ids of jobs, not -1"},
	"after_failure": {"'x'": "must be cancel, run or wait, not 'x'"},
	"job_id":        {"null": "must not be null"},
	"uniqueness": {
		"'[]'": "must be a JSON object", "'{}'": "needs unique_key, or by", "'{\"kay\": 1}'": "unknown member", `'{"by": ["n"], "for": "soon"}'`: "none of the fields",
		`'{"by": ["*"], "for": "soon"}'`: "such as \"1 hour\", not \"soon\"", `E'{"by": ["*"], "on_conflict": "a\\nb"}'`: "replace or fail, not \"a\\nb\"",
		`jsonb_build_object('by', array_fill('n'::text, array[33]))::text`: "1 to 32 names", "'{\"by\"'": notJSON, `'{"by": ["\u0000"]}'`: notJSONB,
	},
}

// Every argument of every public function refuses what is beyond its limit in
// one line that names the argument and the limit. A function or an argument that
// is new here needs values that are.
func TestSQLInputs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	rows, err := client.Pool().Query(ctx, `
		select p.proname, array(select format_type(a, null) from unnest(p.proargtypes) a) as types, p.proargnames[1:p.pronargs] as names
			from pg_proc p
			where p.pronamespace = 'jobq'::regnamespace and p.proname in ('enqueue', 'enqueue_many', 'cancel', 'requeue', 'delete_job')
			order by 1, 2`)
	require.NoError(t, err)
	type function struct {
		Name         string
		Types, Names []string
	}
	functions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	require.NoError(t, err)
	require.Len(t, functions, 9)
	calls := 0
	for _, f := range functions {
		for i, name := range f.Names {
			require.NotEmpty(t, badValues[name], "%s of %s", name, f.Name)
			for value, limit := range badValues[name] {
				if (limit == notJSON && f.Types[i] != "text") || (limit == notJSONB && f.Types[i] == "jsonb") {
					continue
				}
				given := []string{fmt.Sprintf("%s => (%s)::%s", name, value, f.Types[i])}
				if f.Name == "enqueue" && name != "kind" {
					given = append(given, "kind => 'k'")
				}
				if f.Name == "enqueue" && name != "args" { // which tells the overloads apart
					given = append(given, "args => '{}'::"+f.Types[1])
				}
				call := fmt.Sprintf("select * from jobq.%s(%s)", f.Name, strings.Join(given, ", "))
				_, err := client.Pool().Exec(ctx, call)
				jobtest.RequireRefusal(t, err, name, limit, call)
				calls++
			}
		}
	}
	require.Greater(t, calls, 90)
	jobtest.RequireNothingStored(t, client)
}

// The members of a job of enqueue_many are refused with the job's place, be it
// the name, the type or the limit: what is ignored would run with other args
// than were meant.
func TestEnqueueManyMembers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	for member, limit := range map[string]string{
		`"arg": {"id": 1}`:          `unknown member "arg"; there are kind, args, queue`,
		`"delay": "5 minutes"`:      `unknown member "delay"`,
		`"delay": null`:             `unknown member "delay"`, // what is left out must be known too
		`"Queue": "q"`:              `unknown member "Queue"`,
		`"id": 7`:                   `unknown member "id"`,
		`"lease_token": 7`:          `unknown member "lease_token"`,
		`"a\nb": 7`:                 `unknown member "a\nb"`,
		`"kind": ["k"]`:             "kind must be text, not array",
		`"kind": ""`:                "kind must be 1 to 128 characters",
		`"kind": null`:              "kind must be 1 to 128 characters, not null",
		`"queue": {}`:               "queue must be text, not object",
		`"queue": ""`:               "queue must be 1 to 128 characters, not 0",
		`"unique_key": ""`:          "unique_key must be 1 to 255 characters, not 0",
		`"partition_key": ""`:       "partition_key must be 1 to 255 characters, not 0",
		`"partition_key": []`:       "partition_key must be text, not array",
		`"unique_key": true`:        "unique_key must be text, not boolean",
		`"priority": 1.5`:           "priority must be a whole number, -32768 to 32767",
		`"priority": "high"`:        "priority must be a whole number, -32768 to 32767",
		`"priority": 1e30`:          "priority must be a whole number, -32768 to 32767",
		`"priority": 40000`:         "priority must be -32768 to 32767, not 40000",
		`"max_attempts": 0`:         "max_attempts must be 1 to 32767, not 0",
		`"max_attempts": [3]`:       "max_attempts must be a whole number, 1 to 32767",
		`"max_lost": 0`:             "max_lost must be 1 to 32767, not 0",
		`"max_lost": [3]`:           "max_lost must be a whole number, 1 to 32767",
		`"run_at": "soon"`:          "run_at must be a time in the years 1 to 9999",
		`"run_at": 1700000000`:      "run_at must be a time in the years 1 to 9999",
		`"timeout": "long"`:         "timeout must be an interval, positive, at most 10 years",
		`"timeout": -5`:             "timeout must be positive, at most 10 years",
		`"backoff_base": "no"`:      "backoff_base must be an interval",
		`"backoff_max": "20 years"`: "backoff_max must be positive, at most 10 years",
		`"tags": "urgent"`:          "tags must be an array of texts, not string",
		`"tags": {"a": 1}`:          "tags must be an array of texts, not object",
		`"tags": ["a", null]`:       "tags must be at most 32, without nulls",
		`"metadata": "` + jobtest.LongText(70000) + `"`: "metadata must be at most 64 KiB",
		`"args": "` + jobtest.LongText(1<<20) + `"`:     "args must be at most 1048576 bytes",
	} {
		jobs := fmt.Sprintf(`[{"kind": "fine"}, {"kind": "fine", "args": {}}, {"kind": "k", %s}]`, member)
		for _, kind := range []string{"jsonb", "json", "text"} {
			_, err := client.Pool().Exec(ctx, "select * from jobq.enqueue_many($1::"+kind+")", jobs)
			jobtest.RequireRefusal(t, err, "jobs[2]: ", limit, kind+" "+member[:min(len(member), 40)])
		}
	}
	jobtest.RequireNothingStored(t, client)
	// What may be null may be left out, and the other way round.
	_, err := client.Pool().Exec(ctx, `select * from jobq.enqueue_many('[{"kind": "k", "args": null, "queue": null, "priority": null,
		"run_at": null, "max_attempts": null, "unique_key": null, "timeout": null, "backoff_base": null, "backoff_max": null, "tags": null,
		"metadata": null, "partition_key": null}, {"kind": 5, "priority": "7", "tags": [], "unique_key": 4711}]')`)
	require.NoError(t, err)
	page, err := client.List(ctx, jobq.Filter{})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 2)
}

// Callers give args and numbers in whatever type their driver has for them.
func TestSQLTypes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	call := func(sql string, args ...any) *jobq.Job {
		var id int64
		require.NoError(t, client.Pool().QueryRow(ctx, sql, args...).Scan(&id), sql)
		job, err := client.Get(ctx, id)
		require.NoError(t, err)
		return job
	}
	for _, args := range []string{
		`'{"a": 1}'`, `'{"a": 1}'::json`, `'{"a": 1}'::jsonb`, `'{"a": 1}'::text`, `'{"a": 1}'::varchar`,
		`json_build_object('a', 1)`, `jsonb_build_object('a', 1)`,
	} {
		job := call(fmt.Sprintf("select jobq.enqueue('k', %s)", args))
		require.JSONEq(t, `{"a": 1}`, string(job.Args), args)
		job = call(fmt.Sprintf("select jobq.enqueue('k', args => %s, queue => 'q', unique_key => null)", args))
		require.JSONEq(t, `{"a": 1}`, string(job.Args), args)
		call(fmt.Sprintf("select jobq.enqueue('k', %s, metadata => '{}')", args))
		jobs := strings.Replace(args, `{"a": 1}`, `[{"kind": "k", "args": {"a": 1}}]`, 1)
		if strings.Contains(args, "build") {
			jobs = strings.Replace(args, "_object('a', 1)", `_array('{"kind": "k"}'::json)`, 1)
		}
		call(fmt.Sprintf("select id from jobq.enqueue_many(%s)", jobs))
	}
	call("select jobq.enqueue('k', metadata => '{}')")
	call("select jobq.enqueue('k', metadata => '{}'::jsonb)")
	call("select jobq.enqueue('k', '{}'::json, metadata => '{}'::json)")
	require.JSONEq(t, `{}`, string(call("select jobq.enqueue('k', null)").Args))
	require.JSONEq(t, `null`, string(call("select jobq.enqueue('k', 'null')").Args))
	for _, number := range []string{"5", "5::smallint", "5::integer", "5::bigint", "'5'"} {
		job := call(fmt.Sprintf("select jobq.enqueue('k', priority => %s, max_attempts => %[1]s)", number))
		require.Equal(t, []int{5, 5}, []int{int(job.Priority), job.MaxAttempts}, number)
		call(fmt.Sprintf("insert into jobq.pending (kind, priority, max_attempts) values ('k', %s, %[1]s) returning id", number))
	}
	for _, value := range []any{`{"a": 1}`, []byte(`{"a": 1}`)} { // as drivers send parameters of which they know no type
		require.JSONEq(t, `{"a": 1}`, string(call("select jobq.enqueue($1, $2)", "k", value).Args))
		require.JSONEq(t, `{"a": 1}`, string(call("select jobq.enqueue($1, $2::json)", "k", value).Args))
	}
	require.JSONEq(t, `{"a": 1}`, string(call("select jobq.enqueue($1, $2::jsonb)", "k", map[string]any{"a": 1}).Args))
}

// enqueue_many tells a caller whether its job was added or was there.
func TestSQLDuplicateIsTold(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	const one = `select id, duplicate from jobq.enqueue_many(jsonb_build_array(jsonb_build_object('kind', 'resize', 'unique_key', 'cat')))`
	var first, second int64
	var duplicate bool
	require.NoError(t, client.Pool().QueryRow(ctx, one).Scan(&first, &duplicate))
	require.False(t, duplicate)
	require.NoError(t, client.Pool().QueryRow(ctx, one).Scan(&second, &duplicate))
	require.True(t, duplicate)
	require.Equal(t, first, second)
}
