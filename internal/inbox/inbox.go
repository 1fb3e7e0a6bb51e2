// Package inbox writes the SQL that makes an inbox: a trigger on another queue's table,
// which adds to jobq what producers insert there.
package inbox

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
)

// files has a script for each queue. In it `jobq.` stands for the schema of jobq, and
// what is in braces for what the operator has said.
//
//go:embed *.sql
var files embed.FS

// queue is where another queue's jobs are.
type queue struct {
	schema string // unless the operator says another
	table  string
}

var queues = map[string]queue{
	"river":           {"public", "river_job"},
	"graphile-worker": {"graphile_worker", "_private_jobs"},
	"pg-boss":         {"pgboss", "job"},
}

// Queues are the queues for which there are inboxes, sorted.
func Queues() []string { return slices.Sorted(maps.Keys(queues)) }

// Options say what an inbox takes.
type Options struct {
	Queue  string   // whose producers insert: one of Queues
	From   string   // schema of that queue's tables; "" for its default
	Schema string   // schema of jobq
	Kinds  []string // what goes to jobq, by that queue's names; none means everything
	// UniqueKeys takes that queue's keys for jobq's unique keys, though they mean something else there.
	UniqueKeys bool
}

// table is the table with the jobs, and its schema, both quoted.
func (o Options) table() (schema, table string, err error) {
	q, known := queues[o.Queue]
	if !known {
		return "", "", fmt.Errorf("%q: inboxes are for %s", o.Queue, strings.Join(Queues(), ", "))
	}
	from := q.schema
	if o.From != "" {
		from = o.From
	}
	for _, name := range []string{from, o.Schema} {
		if err := db.ValidateSchema(name); err != nil {
			return "", "", err
		}
	}
	schema = pgx.Identifier{from}.Sanitize()
	return schema, schema + "." + q.table, nil
}

// Create returns the script that makes the inbox, or makes it anew with these options.
func Create(o Options) (string, error) {
	schema, table, err := o.table()
	if err != nil {
		return "", err
	}
	body, err := files.ReadFile(o.Queue + ".sql")
	if err != nil {
		return "", err
	}
	kinds := make([]string, len(o.Kinds))
	for i, kind := range o.Kinds {
		kinds[i] = "'" + strings.ReplaceAll(kind, "'", "''") + "'"
	}
	return strings.NewReplacer(
		"{from}", schema, "{table}", table, "{kinds}", strings.Join(kinds, ", "), "{unique_keys}", strconv.FormatBool(o.UniqueKeys),
		"{schema}", pgx.Identifier{o.Schema}.Sanitize(),
	).Replace(db.Render(head+string(body)+foot, o.Schema)), nil
}

// Remove returns the script that removes the inbox.
func Remove(o Options) (string, error) {
	schema, table, err := o.table()
	if err != nil {
		return "", err
	}
	return strings.NewReplacer("{from}", schema, "{table}", table).Replace(begin +
		"drop trigger if exists jobq_inbox on {table};\ndrop function if exists {from}.jobq_inbox;\ncommit;\n"), nil
}

// begin does not wait long for the table: everybody else would wait behind it.
const begin = "begin;\nset local lock_timeout = '5s';\n"

// head comes before the script of a queue. Both first look for what they need, so that a table of
// another version, or a jobq that is not there, is refused at once, and not by each insert.
const head = `-- Inserts into {table} add jobs to jobq: an inbox, made by "jobq inbox". Run it with psql -v ON_ERROR_STOP=1.
-- Producers need no rights in jobq: the function has those of whoever runs this.
` + begin + `set local standard_conforming_strings = on;
do $jobq$ begin
  if not exists (
      select from pg_catalog.pg_proc p
        where p.proname = 'enqueue' and p.pronamespace = to_regnamespace('{schema}') and has_function_privilege(p.oid, 'execute')) then
    raise '% cannot add jobs to jobq in the schema {schema}', current_user
      using hint = 'Say with --schema where jobq is, run jobq migrate up, or grant the role jobq_producer.';
  end if;
end $jobq$;

`

// foot has the kinds as arguments of the trigger.
const foot = `
revoke execute on function {from}.jobq_inbox from public;
drop trigger if exists jobq_inbox on {table};
create trigger jobq_inbox after insert on {table} for each row execute function {from}.jobq_inbox({kinds});
commit;
`
