package filter_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/filter"
)

var columns = filter.Columns{ID: "j.id", Queue: "j.queue", Since: "j.created_at", Worker: "j.lease_owner", Args: "j.args", Scheduled: "j.position is null"}

// What a filter means in SQL.
func TestCondition(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		sql  string
		args []any
	}{
		"":                     {"true", nil},
		"state:failed":         {"true", nil},
		"queue:email,sms":      {"(j.queue = any($3::text[]))", []any{[]string{"email", "sms"}}},
		"kind:Send*":           {"(j.kind like $3)", []any{"Send%"}},
		`kind:100%*,"a*"`:      {"(j.kind like $3 or j.kind = any($4::text[]))", []any{`100\%%`, []string{"a*"}}},
		`err:"smtp 421"`:       {"(j.last_error ilike $3)", []any{"%smtp 421%"}},
		`err:="smtp 421"`:      {"(j.last_error like any($3::text[]) and (jobq.error_pattern(j.last_error) = any($4::text[])))", []any{[]string{"smtp 4%2%1%%"}, []string{"smtp 421"}}},
		`err:="user #: 5_%\\"`: {"(j.last_error like any($3::text[]) and (jobq.error_pattern(j.last_error) = any($4::text[])))", []any{[]string{`user %: 5\_\%\\%`}, []string{`user #: 5_%\`}}},
		`err:=""`:              {"(jobq.error_pattern(j.last_error) = any($3::text[]))", []any{[]string{""}}},
		`err=smtp*`:            {"(jobq.error_pattern(j.last_error) like $3)", []any{"smtp%"}},
		"age:<2h":              {"(j.created_at > now() - $3::bigint * interval '1 us')", []any{int64(7200e6)}},
		"age:>1d":              {"(j.created_at < now() - $3::bigint * interval '1 us')", []any{int64(86400e6)}},
		"args.tenant=4411": {
			`((j.args #>> '{"tenant"}') = any($3::text[]) or j.args_apart and (((select a.args from jobq.payload a where a.job_id = j.id) #>> '{"tenant"}') = any($4::text[])))`,
			[]any{[]string{"4411"}, []string{"4411"}},
		},
		"-tag:eu":              {"((exists (select from unnest(j.tags) as tag(name) where tag.name = any($3::text[]))) is not true)", []any{[]string{"eu"}}},
		"id:1,2":               {"(j.id = any($3::text[]::bigint[]))", []any{[]string{"1", "2"}}},
		"attempts:>=3":         {"(j.attempts >= $3::text::bigint)", []any{"3"}},
		"state:retrying":       {"(j.attempts > 0 or not (j.position is null))", nil},
		"worker:w queue:a":     {"(j.lease_owner = any($3::text[])) and (j.queue = any($4::text[]))", []any{[]string{"w"}, []string{"a"}}},
		"args.user.size:>10.5": {"(case when jsonb_typeof(j.args #> $3::text[]) = 'number' then (j.args #> $3::text[])::numeric > $4::text::numeric end)", []any{[]string{"user", "size"}, "10.5"}},
	} {
		query, err := filter.Parse(text)
		require.NoError(t, err, text)
		sql, args := query.Condition(columns, 3)
		require.Equal(t, want.sql, sql, text)
		require.Equal(t, want.args, args, text)
	}
	counted, moment := columns, time.Unix(1, 0)
	counted.Now = moment
	query, err := filter.Parse("age:<2h")
	require.NoError(t, err)
	sql, args := query.Condition(counted, 3)
	require.Equal(t, "(j.created_at > $3::timestamptz - $4::bigint * interval '1 us')", sql)
	require.Equal(t, []any{moment, int64(7200e6)}, args)
}

// An exclamation mark before a term means what a dash means, and is written as one. Inside of a value it is text.
func TestExclamationMarkNegates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"!invoice":                 "-invoice",
		"!queue:email state:!= !x": "",
		"!queue:email,sms !x*":     "-queue:email,sms -x*",
		`!"a b" tag:!x "!x"`:       `-"a b" tag:"!x" "!x"`,
		"!":                        "",
	} {
		query, err := filter.Parse(text)
		if want == "" {
			require.Error(t, err, text)
			continue
		}
		require.NoError(t, err, text)
		require.Equal(t, want, query.String())
	}
}

// A list of states says which tables need to be looked at.
func TestStates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "waiting scheduled available running completed failed cancelled",
		"state:failed":                       "failed",
		"state:cancelled,failed":             "failed cancelled",
		"-state:completed":                   "waiting scheduled available running failed cancelled",
		"state:failed state:running":         "",
		"state:retrying":                     "scheduled",
		"-state:retrying state:scheduled":    "scheduled",
		"state:failed,running -state:failed": "running",
	} {
		query, err := filter.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, strings.Join(query.States(), " "), text)
	}
}

// The ages that all jobs of a query have, for who leaves out the days of others.
func TestAges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]time.Duration{
		"state:failed":     {},
		"age:<2h":          {2 * time.Hour, 0},
		"age:<=2h age:<1h": {time.Hour, 0},
		"age:>1d age:>=2d": {0, 48 * time.Hour},
		"-age:>1d age:>1h": {24 * time.Hour, time.Hour},
		"-age:<1h queue:a": {0, time.Hour},
	} {
		query, err := filter.Parse(text)
		require.NoError(t, err, text)
		most, least := query.Ages()
		require.Equal(t, want, [2]time.Duration{most, least}, text)
	}
}

// What cannot be meant is refused, and the message says where and what can.
func TestErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"queue:a foo:b":                      `character 9: no field "foo"; there are state, queue, kind`,
		"state:fialed":                       `no state "fialed"`,
		"age:2h":                             "age is compared",
		"age:<soon":                          `age "soon": a duration is a number with a unit`,
		"id:x":                               `id is a number, not "x"`,
		"queue:":                             "character 7: a value is missing",
		"queue:a,":                           "a value is missing",
		`err:"smtp`:                          "the quote is not closed",
		`err:"a"b`:                           "text right after a quote",
		"args:3":                             "name the member: args.name=value",
		"queue.x:3":                          "queue has no members",
		"queue:>3":                           "queue has no order",
		"attempts:>3,4":                      "one value after >",
		"args.n>abc":                         `> compares numbers, not "abc"`,
		strings.Repeat("a ", 33):             "more than 32 terms",
		strings.Repeat("a", 4097):            "longer than 4096 bytes",
		"a\x00":                              "not text",
		"id:" + strings.Repeat("1,", 1001):   "more than 1000 values",
		"id:99999999999999999999999999999":   "id is a number",
		"args.n>" + strings.Repeat("9", 200): "compares numbers",
	} {
		_, err := filter.Parse(text)
		require.ErrorContains(t, err, want, text)
		var problem *filter.Error
		require.ErrorAs(t, err, &problem)
	}
}

// Whatever is accepted is written back as it was meant, and has as many
// parameters as placeholders, with no text of its own in the SQL.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`state:failed queue:email kind:Send* err:"smtp 421" age:<2h args.tenant=4411`, `-tag:eu,"a b" id:>3 x`,
		`err:="a b",c`, `meta.a.b:"\"" key:*`, `args.a<=-1.5 worker:a*`, `"quoted, bare" -"-x" 4711`, "état:x", `--a* ,`, "-state:retrying",
		"key:" + strings.Repeat("a-,", 900) + "b", // quoting makes it longer than what may be typed
	} {
		f.Add(text)
	}
	placeholder := regexp.MustCompile(`\$(\d+)`)
	path := regexp.MustCompile(`'\{("[A-Za-z0-9_-]+",?)+\}'`) // the only text of a filter that is in the SQL
	f.Add(`!tag:eu !x* -!x* !-x*`)
	f.Fuzz(func(t *testing.T, text string) {
		query, err := filter.Parse(text)
		if err != nil {
			return
		}
		written := query.String()
		again, err := filter.ParseStored(written) // quoting can make it longer
		require.NoError(t, err, written)
		require.Equal(t, query, again, written)
		sql, args := query.Condition(columns, 7)
		highest := 6
		for _, match := range placeholder.FindAllStringSubmatch(sql, -1) {
			number, err := strconv.Atoi(match[1])
			require.NoError(t, err)
			highest = max(highest, number)
		}
		require.Equal(t, 6+len(args), highest, sql)
		require.NotRegexp(t, `[^a-z_0-9A-Z(){}%$=<>.:,'# *\[\]+-]`, path.ReplaceAllString(sql, ""))
		query.States()
	})
}
