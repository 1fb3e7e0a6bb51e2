package tests

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Errors of the same cause have the same pattern, whatever number, id, address or
// quoted text is in them; what says which error it is stays.
func TestErrorPattern(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	for pattern, errors := range map[string][]string{
		"user #: dial tcp #: connection refused": {"user 4711: dial tcp 10.0.0.7:5432: connection refused", "user 8: dial tcp 10.0.10.9:80: connection refused"},
		"dial [#]:#: timeout":                    {"dial [2001:db8::1]:5432: timeout", "dial [fe80:0:0:abcd::1]:80: timeout"},
		"job # is gone":                          {"job 550e8400-e29b-41d4-a716-446655440000 is gone", "job abcdefab-cdef-abcd-efab-cdefabcdefab is gone", "job 0xdeadBEEF1 is gone", "job 7 is gone", "job ch_3MmlLrLk0B15 is gone"},
		"can't open #: it doesn't exist":         {"can't open 'a b': it doesn't exist", `can't open "c": it doesn't exist`, "can't open `d e`: it doesn't exist"},
		"the users' job and the owners' key":     {"the users' job and the owners' key"},
		"mail to # bounced after #":              {"mail to ann.lee+x@example.co.uk bounced after 1m30.5s", "mail to b@c.org bounced after 45ms"},
		"at # it was late":                       {"at 2026-01-02T15:04:05.123Z it was late", "at 12:30 it was late"},
		"lease expired: worker web-# is silent":  {"lease expired: worker web-1-4711-0a1b2c3d is silent"},
		"exit code 1":                            {"exit code 1", "exit code 1\nat line 12"},
		"exit code 65":                           {"exit code 65"},
		"HTTP 503 from #":                        {"HTTP 503 from 'a'"},
		"pq: (SQLSTATE 40P01)":                   {"pq: (SQLSTATE 40P01)"},
		"std::bad_alloc: a decade of facades":    {"std::bad_alloc: a decade of facades"},
		"línea":                                  {"línea\r\nzwei"},
		"":                                       {"", "\nsecond"},
		strings.Repeat("ö", 60):                  {strings.Repeat("ö", 60), strings.Repeat("ö", 250)},
	} {
		for _, text := range errors {
			var got string
			require.NoError(t, pool.QueryRow(ctx, "select rtrim(jobq.error_pattern($1), E'\\r')", text).Scan(&got))
			require.Equal(t, pattern, got, text)
		}
	}
	var none string
	require.NoError(t, pool.QueryRow(ctx, "select jobq.error_pattern(null)").Scan(&none))
	require.Empty(t, none)
}

// What a filter asks of an error before its pattern is true of each error of that
// pattern, whatever the error is made of.
func TestErrorsPassForTheirPattern(t *testing.T) {
	t.Parallel()
	parts := []string{
		"status ", "code:", "Exit Code = ", "errno=", "HTTP  ", "http:=", "SQLSTATE", "signal", "barcode ", "ok", "a", "5", "40P01", "0xF", "_", "%", `\\`, "#", "##", " ", ", ", ".", ":", "=", "-",
		`"x y"`, "`b`", "'c'", "'", `"`, "ann@b.org", "10.0.0.7:80", "fe80::1", "550e8400-e29b-41d4-a716-446655440000", "é", "ß", "İ", "ſ", "²", "語", "\r", "\n", "\t", strings.Repeat("long ", 11),
	}
	random := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- the same each time
	texts := make([]string, 20_000)
	for i := range texts {
		for range 1 + random.IntN(9) {
			texts[i] += parts[random.IntN(len(parts))]
		}
	}
	texts = append(texts, "status 5#", "status ok# foo", `status a"x"b c`, "http status#", "code a#b#c 7", `exit code 'x'2`)
	ctx := context.Background()
	pool := pgtest.Pool(t)
	rows, err := pool.Query(ctx, "select jobq.error_pattern(x.text) from unnest($1::text[]) with ordinality as x(text, i) order by x.i", texts)
	require.NoError(t, err)
	patterns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	var errors, likes []string
	for i, pattern := range patterns {
		var query filter.Query
		if pattern != "" {
			_, args := query.And(filter.Reason(pattern)).Condition(filter.Columns{}, 1)
			require.Len(t, args, 2)
			errors, likes = append(errors, texts[i]), append(likes, args[0].([]string)...)
		}
	}
	require.Greater(t, len(likes), len(texts)/2)
	rows, err = pool.Query(ctx, "select format('%s does not match %s', to_json(x.text), x.pattern) from unnest($1::text[], $2::text[]) as x(text, pattern) where x.text not like x.pattern limit 20", errors, likes)
	require.NoError(t, err)
	missed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, missed)
}

// A group of failures is found without the pattern of each other error.
func TestGroupIsFoundWithFewPatterns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	for reason, count := range map[string]int{"user %s: no mailbox": 5000, "user %s: exit code 2": 5000, "user %s: exit code 1": 20} {
		_, err := pool.Exec(ctx, `
			insert into jobq.run (id, lease_id, slot, run_at, created_at, state, finished_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args, last_error)
			  select nextval('jobq.job_id_seq'), jobq.lease_id_next(), 0, now(), now(), 'failed', now(), 0, 1, 1, 0, false, 'q', 'k', '{}', format($1, i)
			    from generate_series(1, $2::integer) i`, reason, count)
		require.NoError(t, err)
	}
	query, err := filter.Parse(`state:failed queue:q kind:k err:="user #: exit code 1"`)
	require.NoError(t, err)
	page := query.Page(time.Time{})
	page.Size = 51
	sql, args := page.SQL()
	var plan []string
	rows, err := pool.Query(ctx, "explain (costs off) "+sql, args...)
	require.NoError(t, err)
	plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	looked := 0
	for _, line := range plan {
		before, _, found := strings.Cut(line, "regexp_replace(")
		if found {
			looked++
			require.Contains(t, before, "~~ ANY", "the condition that costs little is not first")
		}
	}
	require.NotZero(t, looked, strings.Join(plan, "\n"))

	_, err = pool.Exec(ctx, "create sequence public.patterns")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `create or replace function jobq.error_pattern(error text) returns text language plpgsql immutable parallel safe as $$
begin
  perform nextval('public.patterns');
  return regexp_replace(error, '[0-9]+', '#');
end $$`)
	require.NoError(t, err)
	tag, err := pool.Exec(ctx, sql, args...)
	require.NoError(t, err)
	require.EqualValues(t, 20, tag.RowsAffected())
	var patterns int
	require.NoError(t, pool.QueryRow(ctx, "select last_value from public.patterns").Scan(&patterns))
	require.LessOrEqual(t, patterns, 40)
}
