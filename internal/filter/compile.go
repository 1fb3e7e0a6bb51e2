package filter

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/when"
)

// Columns are the SQL expressions of the fields that are not the same in each
// table of jobs.
type Columns struct {
	ID, Queue string
	// Since is the moment that age counts from, and Now that up to which it counts;
	// zero for that of the statement.
	Since string
	Now   time.Time
	// Worker and Args are what some tables lack or keep apart, and Scheduled
	// says whether the job has yet to become available.
	Worker, Args, Scheduled string
	// Unfinished says that no job is over there: then jobq.unique_key has the unique keys.
	Unfinished bool
}

// States are the states that the query leaves possible, without the
// pseudo-state retrying, in the order of a job's life.
func (q Query) States() []string {
	var possible []string
	for _, state := range states[:len(states)-1] {
		if !slices.ContainsFunc(q.terms, func(t Term) bool { return t.Field == "state" && !t.allows(state) }) {
			possible = append(possible, state)
		}
	}
	return possible
}

// Estimable says whether the statistics of the server tell about how many jobs match: it asks for states, queues
// and kinds only, of which they know the frequent ones.
func (q Query) Estimable() bool {
	return !slices.ContainsFunc(q.terms, func(t Term) bool {
		return t.Field != "state" && t.Field != "queue" && t.Field != "kind"
	})
}

// Ages are those that all jobs of the query have at most, and at least; 0 if
// there is none.
func (q Query) Ages() (most, least time.Duration) {
	for _, term := range q.terms {
		if term.Field != "age" {
			continue
		}
		age, _ := when.ParseDuration(term.Values[0].Text) // checked by Parse
		if strings.HasPrefix(term.Op, "<") != term.Negated {
			if most == 0 || age < most {
				most = age
			}
		} else {
			least = max(least, age)
		}
	}
	return most, least
}

func (t Term) allows(state string) bool {
	named := slices.ContainsFunc(t.Values, func(v Value) bool {
		return v.Text == state || !t.Negated && v.Text == "retrying" && state == "scheduled"
	})
	return named != t.Negated
}

// Condition is the query as a SQL condition on a job with the alias j, and
// the values of its parameters, which are numbered from first. States are not
// in it, but for the part of retrying that States does not tell.
func (q Query) Condition(columns Columns, first int) (string, []any) {
	c := compiler{columns: columns, first: first}
	conditions := make([]string, 0, len(q.terms))
	for _, term := range q.terms {
		condition := c.term(term)
		if condition == "" {
			continue
		}
		if term.Negated {
			// What is null is not equal to anything, and so is among the others.
			condition = "(" + condition + ") is not true"
		}
		conditions = append(conditions, "("+condition+")")
	}
	if len(conditions) == 0 {
		return "true", nil
	}
	return strings.Join(conditions, " and "), c.args
}

type compiler struct {
	columns Columns
	first   int
	args    []any
}

// param adds a parameter and returns its placeholder.
func (c *compiler) param(value any) string {
	c.args = append(c.args, value)
	return fmt.Sprintf("$%d", c.first+len(c.args)-1)
}

func (c *compiler) term(t Term) string {
	switch t.Field {
	case "state":
		return c.retrying(t)
	case "queue":
		return c.texts(c.columns.Queue, t.Values)
	case "kind":
		return c.texts("j.kind", t.Values)
	case "key":
		return c.key(t)
	case "partition":
		return c.texts("j.partition_key", t.Values)
	case "worker":
		return c.texts(c.columns.Worker, t.Values)
	case "tag":
		return "exists (select from unnest(j.tags) as tag(name) where " + c.texts("tag.name", t.Values) + ")"
	case "err":
		if t.Op == "=" {
			return c.pattern(t.Values)
		}
		return c.contains(t.Values, "j.last_error")
	case "id":
		return c.numbers(c.columns.ID, t)
	case "attempts", "priority":
		return c.numbers("j."+t.Field, t)
	case "age":
		age, _ := when.ParseDuration(t.Values[0].Text) // checked by Parse
		// Older than an age is before a moment.
		operators := map[string]string{"<": ">", "<=": ">=", ">": "<", ">=": "<="}
		now := "now()"
		if !c.columns.Now.IsZero() {
			now = c.param(c.columns.Now) + "::timestamptz"
		}
		return fmt.Sprintf("%s %s %s - %s::bigint * interval '1 us'", c.columns.Since, operators[t.Op], now, c.param(age.Microseconds()))
	case "args":
		return c.argsMember(t)
	case "meta":
		return c.member("j.metadata", t)
	}
	return c.bare(t)
}

// retrying is what a list of states with retrying in it asks beyond States.
func (c *compiler) retrying(t Term) string {
	named := func(state string) bool {
		return slices.ContainsFunc(t.Values, func(v Value) bool { return v.Text == state })
	}
	switch {
	case !named("retrying"):
		return ""
	case t.Negated:
		return "j.attempts > 0 and " + c.columns.Scheduled
	case named("scheduled"):
		return ""
	}
	return "j.attempts > 0 or not (" + c.columns.Scheduled + ")"
}

// bare looks for ids, and for words anywhere.
func (c *compiler) bare(t Term) string {
	var alternatives []string
	for _, value := range t.Values {
		if integerPattern.MatchString(value.Text) {
			alternatives = append(alternatives, c.columns.ID+" = "+c.param(value.Text)+"::text::bigint")
		}
		alternatives = append(alternatives, c.contains([]Value{value}, "j.kind", c.columns.Queue, "j.last_error"))
	}
	return strings.Join(alternatives, " or ")
}

func (c *compiler) contains(values []Value, columns ...string) string {
	var alternatives []string
	for _, value := range values {
		pattern := c.param("%" + value.like() + "%")
		for _, column := range columns {
			alternatives = append(alternatives, column+" ilike "+pattern)
		}
	}
	return strings.Join(alternatives, " or ")
}

// texts wants the column to be one of the values, by equality as far as that
// goes: it can use an index.
func (c *compiler) texts(column string, values []Value) string {
	var alternatives, exact []string
	for _, value := range values {
		if !value.Wild {
			exact = append(exact, value.Text)
			continue
		}
		alternatives = append(alternatives, column+" like "+c.param(value.like()))
	}
	if len(exact) > 0 {
		alternatives = append(alternatives, column+" = any("+c.param(exact)+"::text[])")
	}
	return strings.Join(alternatives, " or ")
}

// key asks for unique keys. Of unfinished jobs, the table of keys has each, by kind and key: it is asked for each
// kind in it, of which there are few. The array keeps the planner from reading the jobs first.
func (c *compiler) key(t Term) string {
	condition := c.texts("j.unique_key", t.Values)
	if !c.columns.Unfinished || t.Negated || slices.ContainsFunc(t.Values, func(v Value) bool { return v.Wild }) {
		return condition
	}
	return condition + " and " + c.columns.ID + ` = any(array(
        with recursive kind(name) as (
          (select u.kind from jobq.unique_key u order by u.kind limit 1)
          union all
          select (select u.kind from jobq.unique_key u where u.kind > k.name order by u.kind limit 1)
            from kind k where k.name is not null
        )
        select u.job_id
          from kind k
          cross join lateral (select x.job_id from jobq.unique_key x
            where x.kind = k.name and ` + c.texts("x.key", t.Values) + ` offset 0) u
          where k.name is not null))`
}

// like is the value as a LIKE pattern.
func (v Value) like() string {
	pattern := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(v.Text)
	if v.Wild {
		pattern = strings.ReplaceAll(pattern, "*", "%")
	}
	return pattern
}

func (c *compiler) numbers(column string, t Term) string {
	if t.Op != ":" {
		return fmt.Sprintf("%s %s %s::text::bigint", column, t.Op, c.param(t.Values[0].Text))
	}
	texts := make([]string, len(t.Values))
	for i, value := range t.Values {
		texts[i] = value.Text
	}
	return fmt.Sprintf("%s = any(%s::text[]::bigint[])", column, c.param(texts))
}

// argsMember is member of args. Equality asks for the args in the job's row and for those that are kept apart each by
// itself, with the path as a constant: so it can use the indexes that docs/filter.md tells how to make.
func (c *compiler) argsMember(t Term) string {
	if t.Op != ":" || slices.ContainsFunc(t.Path, func(name string) bool { return !pathPattern.MatchString(name) }) {
		return c.member(c.columns.Args, t)
	}
	path := ` #>> '{"` + strings.Join(t.Path, `","`) + `"}'`
	return c.texts("(j.args"+path+")", t.Values) + " or j.args_apart and (" +
		c.texts("((select a.args from jobq.payload a where a.job_id = j.id)"+path+")", t.Values) + ")"
}

// pathPattern is a name in a path that needs no quotes in SQL.
var pathPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// member compares a member of a JSON column: as text when for equality, so
// that numbers are compared as they are written, and as numbers for order.
func (c *compiler) member(column string, t Term) string {
	path := c.param(t.Path) + "::text[]"
	if t.Op != ":" {
		return fmt.Sprintf("case when jsonb_typeof(%s #> %s) = 'number' then (%s #> %s)::numeric %s %s::text::numeric end",
			column, path, column, path, t.Op, c.param(t.Values[0].Text))
	}
	return c.texts(fmt.Sprintf("(%s #>> %s)", column, path), t.Values)
}
