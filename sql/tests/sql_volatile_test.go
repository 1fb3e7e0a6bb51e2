package tests

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// sqlToken is a comment, a text, a word, or one other character.
var sqlToken = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|[A-Za-z_][A-Za-z0-9_]*|[^\s]`)

// conditionEnds are the words that end a WHERE, an ON or a HAVING.
var conditionEnds = strings.Fields(`; where group order limit offset returning union window for join left right cross inner
	full on having loop set select from insert update delete using`)

// volatileConditions finds the conditions that compare a column of an index, or
// of a partition key, with a function that is volatile. PostgreSQL may not use
// such a condition to look into an index, nor to leave partitions out: the value
// may be another one for each row. It reads all rows instead.
type volatileConditions struct {
	volatile, indexed []string
	found             []string
}

// sql looks at a statement, or at the body of a function.
func (v *volatileConditions) sql(text string) {
	var tokens []string
	for _, token := range sqlToken.FindAllString(text, -1) {
		switch {
		case strings.HasPrefix(token, "--") || strings.HasPrefix(token, "/*"):
		case strings.HasPrefix(token, "'"): // what a function may execute
			v.sql(strings.ReplaceAll(token[1:len(token)-1], "''", "'"))
			tokens = append(tokens, "''")
		default:
			tokens = append(tokens, strings.ToLower(token))
		}
	}
	for len(tokens) > 0 {
		tokens = v.scope(tokens)
	}
}

// scope looks at the tokens of one SELECT, or its like, up to the parenthesis
// that closes it, and returns those that follow.
func (v *volatileConditions) scope(tokens []string) (rest []string) {
	var condition []string
	inside, depth := false, 0
	end := func() {
		v.check(condition)
		condition, inside = nil, false
	}
	for len(tokens) > 0 {
		token := tokens[0]
		tokens = tokens[1:]
		switch {
		case token == "(" && len(tokens) > 0 && slices.Contains([]string{"select", "with", "insert", "update", "delete"}, tokens[0]):
			tokens = v.scope(tokens)
			continue
		case token == "(":
			depth++
		case token == ")" && depth == 0:
			end()
			return tokens
		case token == ")":
			depth--
		}
		switch {
		case depth == 0 && (token == "where" || token == "having" || token == "on" && len(tokens) > 0 && tokens[0] != "conflict"):
			end()
			inside = true
		case inside && depth == 0 && slices.Contains(conditionEnds, token):
			end()
		case inside && depth == 0 && token == "and" && !slices.Contains(condition, "between") && !openCase(condition):
			v.check(condition)
			condition = nil
		case inside:
			condition = append(condition, token)
		}
	}
	end()
	return nil
}

// openCase says whether the condition is in the middle of a CASE.
func openCase(condition []string) bool {
	open := 0
	for _, token := range condition {
		switch token {
		case "case":
			open++
		case "end":
			open--
		}
	}
	return open > 0
}

// check looks at one condition.
func (v *volatileConditions) check(condition []string) {
	calls, compares := false, false
	for i, token := range condition {
		if i+1 < len(condition) && condition[i+1] == "(" {
			calls = calls || slices.Contains(v.volatile, token)
		} else {
			compares = compares || slices.Contains(v.indexed, token)
		}
	}
	if calls && compares {
		v.found = append(v.found, strings.Join(condition, " "))
	}
}

// What the test below finds, and what it must not.
func TestVolatileConditions(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]int{
		"select 1 from t where t.at < clock_timestamp() - interval '1 day' and t.b":                       1,
		"delete from t where t.b and (t.c is null or t.at <= clock_timestamp()) returning t.at":           1,
		"select 1 from t where t.at between now() and clock_timestamp() order by 1":                       1,
		"select 1 from t where case when t.b then t.at < clock_timestamp() end and t.c = 1":               1,
		"select 1 from t where case when t.b then t.c < clock_timestamp() end and t.id = 1":               0,
		"select 1 from t join u on t.at = date_trunc('day', clock_timestamp()) where true":                1,
		"select (select 1 from t where t.at > clock_timestamp()) from u where u.b":                        1,
		"with x as (select 1 from t where t.at > clock_timestamp()) select 1 from x":                      1,
		"begin execute format('delete from %I where at < clock_timestamp()', a); end":                     1,
		"begin for x in select 1 from t where at < clock_timestamp() loop y := 1; end loop; end":          1,
		"select 1 from t where t.at < (select clock_timestamp())":                                         0,
		"select 1 from t where t.at < statement_timestamp() and t.b < clock_timestamp()":                  0,
		"update t set at = clock_timestamp() where t.id = 1":                                              0,
		"insert into t (at) values (clock_timestamp()) on conflict (at) do update set at = excluded.at":   0,
		"select clock_timestamp(), t.at from t where t.id = 1 -- at < clock_timestamp()":                  0,
		"begin if new.at > clock_timestamp() then a := 1; end if; end":                                    0,
		"select 1 from t where t.id = 1 and exists (select 1 from u where u.b < clock_timestamp())":       0,
		"select clock_timestamp() - t.at from t where exists (select 1 from u where u.id = t.id) limit 1": 0,
	} {
		v := volatileConditions{volatile: []string{"clock_timestamp"}, indexed: []string{"id", "at"}}
		v.sql(sql)
		require.Len(t, v.found, want, sql)
	}
}

// No query, view or function compares a column of an index or of a partition
// key with a volatile function, such as clock_timestamp(): statement_timestamp()
// and now() are stable, and so is what a subselect has computed once.
func TestNoConditionIsVolatile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	texts := func(sql string) (found []string) {
		rows, err := q.pool.Query(ctx, sql)
		require.NoError(t, err)
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.NotEmpty(t, found, sql)
		return found
	}
	indexed := texts(`select distinct a.attname from pg_index i
		  join pg_class c on c.oid = i.indrelid and c.relnamespace = 'jobq'::regnamespace
		  join pg_attribute a on a.attrelid = c.oid and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1])
		union select a.attname from pg_partitioned_table p
		  join pg_class c on c.oid = p.partrelid and c.relnamespace = 'jobq'::regnamespace
		  join pg_attribute a on a.attrelid = c.oid and a.attnum = any(p.partattrs::int2[])`)
	require.Subset(t, indexed, []string{"run_at", "finished_at", "minute", "at"})
	volatile := texts("select distinct proname from pg_proc where provolatile = 'v' and pronamespace in ('pg_catalog'::regnamespace, 'jobq'::regnamespace)")
	require.Subset(t, volatile, []string{"clock_timestamp", "backoff_delay"})

	sources := texts(`select format('view %s: %s', oid::regclass, pg_get_viewdef(oid)) from pg_class where relnamespace = 'jobq'::regnamespace and relkind = 'v'`)
	sources = append(sources, texts(`select format('function %s: %s', oid::regprocedure, case prosrc when '' then pg_get_functiondef(oid) else prosrc end)
		from pg_proc where pronamespace = 'jobq'::regnamespace`)...)
	files, err := filepath.Glob("../../sql/queries/*.sql")
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, query := range strings.Split(string(content), "-- name: ")[1:] {
			name, text, _ := strings.Cut(query, "\n")
			sources = append(sources, "query "+name+": "+text)
		}
	}
	require.Greater(t, len(sources), 100)
	for _, source := range sources {
		v := volatileConditions{volatile: volatile, indexed: indexed}
		name, text, _ := strings.Cut(source, ": ")
		v.sql(text)
		for _, condition := range v.found {
			t.Errorf("%s: %s", name, condition)
		}
	}
}
