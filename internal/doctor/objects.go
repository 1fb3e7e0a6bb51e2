package doctor

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// expectedObjects is what the migrations make, a line each, as objectsSQL writes it:
// TestObjects compares it with a schema just migrated, and writes it anew.
//
//go:embed objects.txt
var expectedObjects string

// objectsSQL is a line for each object of the schema: what it is, its name, and a
// digest of what it is made of, such as the body of a function, the condition of a
// constraint and the default of a column. It is the same on every version of PostgreSQL,
// whatever the schema is called, under the settings of inTransaction, and after a dump was
// restored: parentheses may then be others in conditions, and do not count there. Not in it: the
// texts of views, which depend on the version and on whether they were restored; days of the history, which come and
// go, and the body of args_bytes_max, which operators may replace.
const objectsSQL = `
with ours as (
  select c.oid, c.relname, c.relkind, c.relpersistence
    from pg_class c
    where c.relnamespace = $1::text::regnamespace and c.relname !~ '_[0-9]{8}(_|$)' and c.relname <> 'jobq_migration'
), line as (
  select case r.relkind when 'v' then 'view ' when 'S' then 'sequence ' else 'table ' end || r.relname as name,
      case when r.relkind <> 'S' then r.relpersistence::text end as made -- that of a sequence depends on the version
    from ours r
    where r.relkind in ('r', 'p', 'v', 'S')
  union all
  select 'column ' || r.relname || '.' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, pg_get_expr(d.adbin, d.adrelid))
    from ours r
    join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where r.relkind in ('r', 'p', 'v')
  union all
  select 'constraint ' || r.relname || ': ' || c.conname, concat_ws(' ', c.contype, c.convalidated, translate(pg_get_constraintdef(c.oid), '()', ''))
    from ours r
    join pg_constraint c on c.conrelid = r.oid
    where c.contype <> 'n' -- since PostgreSQL 18 NOT NULL is one
  union all
  select 'domain ' || t.typname, concat_ws(' ', format_type(t.typbasetype, t.typtypmod), (select string_agg(c.conname || ' ' || pg_get_constraintdef(c.oid), ' ' order by c.conname) from pg_constraint c where c.contypid = t.oid))
    from pg_type t
    where t.typnamespace = $1::text::regnamespace and t.typtype = 'd'
  union all
  select 'index ' || r.relname, regexp_replace(pg_get_indexdef(r.oid), '^.* USING ', '')
    from ours r
    where r.relkind in ('i', 'I')
  union all
  select 'trigger ' || r.relname || '.' || t.tgname, pg_get_triggerdef(t.oid)
    from ours r
    join pg_trigger t on t.tgrelid = r.oid and not t.tgisinternal and t.tgparentid = 0 -- before 15, those of partitions are internal
  union all
  select 'function ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', concat_ws(' ', pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.prosecdef, p.provolatile, p.prosrc,
      -- Of a body in standard SQL, prosrc is empty. Before PostgreSQL 15, the column of an exists has a name.
      case when p.proname <> 'args_bytes_max' then replace(pg_get_function_sqlbody(p.oid), ' AS bool', '') end)
    from pg_proc p
    where p.pronamespace = $1::text::regnamespace
)
select replace(replace(l.name || ' ', '"' || n.name || '".', 'jobq.'), n.quoted || '.', 'jobq.')
    || left(md5(replace(replace(coalesce(l.made, ''), '"' || n.name || '".', 'jobq.'), n.quoted || '.', 'jobq.')), 8)
  from line l
  cross join (select $2::text as name, $1::text as quoted) n`

// readObjects returns the lines of objectsSQL.
func (p *patient) readObjects(ctx context.Context) ([]string, error) {
	var quoted string
	if err := p.tx.QueryRow(ctx, "select quote_ident($1)", p.schema.Name()).Scan(&quoted); err != nil {
		return nil, err
	}
	rows, err := p.tx.Query(ctx, objectsSQL, quoted, p.schema.Name())
	if err != nil {
		return nil, err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	slices.Sort(lines) // the same whatever the collation of the database
	return lines, err
}

// namedAtMost is how many objects a finding names.
const namedAtMost = 5

// nameSome lists the first names, and how many more there are.
func nameSome(names []string) string {
	if len(names) > namedAtMost {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedAtMost], ", "), len(names)-namedAtMost)
	}
	return strings.Join(names, ", ")
}

// checkSchema compares the schema with what the migrations make. What is there
// besides is the operator's.
func checkSchema(ctx context.Context, p *patient) (findings []Finding, err error) {
	if p.newer {
		return nil, notAllowed{"a later jobq has changed the tables: only its `jobq doctor` knows how they should be"}
	}
	lines, err := p.readObjects(ctx)
	if err != nil {
		return nil, err
	}
	found := make(map[string]string, len(lines))
	for _, line := range lines {
		name, digest := cutDigest(line)
		found[name] = digest
	}
	var missing, changed []string
	for _, line := range strings.Split(strings.TrimSpace(expectedObjects), "\n") {
		name, digest := cutDigest(line)
		switch made, ok := found[name]; {
		case !ok:
			missing = append(missing, name)
		case made != digest:
			changed = append(changed, name)
		}
	}
	const advice = "compare with `jobq migrate sql`, and make it again as it is there; after a restore, see what the restore complained about"
	if len(missing) > 0 {
		findings = append(findings, Finding{Severity: Critical, Problem: "missing: " + nameSome(missing), Advice: advice})
	}
	if len(changed) > 0 {
		findings = append(findings, Finding{Severity: Warning, Problem: "not as the migrations make it: " + nameSome(changed), Advice: advice})
	}
	return findings, nil
}

func cutDigest(line string) (name, digest string) {
	at := strings.LastIndexByte(line, ' ')
	return line[:at], line[at+1:]
}

// names runs a query that returns one text a row.
func (p *patient) names(ctx context.Context, sql string, args ...any) ([]string, error) {
	rows, err := p.tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// inSchema is the namespace of jobq's tables in a query whose $1 is its name.
const inSchema = `(select n.oid from pg_namespace n where n.nspname = $1)`

func checkIndexes(ctx context.Context, p *patient) ([]Finding, error) {
	invalid, err := p.names(ctx, `
		select c.relname::text from pg_index i join pg_class c on c.oid = i.indexrelid
		  where c.relnamespace = `+inSchema+` and not (i.indisvalid and i.indisready)
		  order by 1 limit 100`, p.schema.Name())
	if err != nil || len(invalid) == 0 {
		return nil, err
	}
	return []Finding{{
		Severity: Critical, Problem: "invalid indexes, which no query uses: " + nameSome(invalid),
		Advice: "make each again: reindex index concurrently NAME; one whose name ends in _ccnew is left over, drop it",
	}}, nil
}

func checkTriggers(ctx context.Context, p *patient) ([]Finding, error) {
	disabled, err := p.names(ctx, `
		select t.tgrelid::regclass || '.' || t.tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid
		  where c.relnamespace = `+inSchema+` and not t.tgisinternal and t.tgenabled in ('D', 'R')
		  order by 1 limit 100`, p.schema.Name())
	if err != nil || len(disabled) == 0 {
		return nil, err
	}
	return []Finding{{
		Severity: Critical, Problem: "disabled triggers: " + nameSome(disabled) + ": unique keys, large args or wake-ups do not work",
		Advice: "alter table TABLE enable trigger NAME; a restore with --disable-triggers that was interrupted leaves them so",
	}}, nil
}

// roleNeeds is the least that a role of sql/roles.sql needs of a table.
var roleNeeds = []struct {
	role, table string
	privileges  []string
}{
	{"jobq_worker", "pending", []string{"select", "insert", "delete"}},
	{"jobq_worker", "run", []string{"select", "insert", "update", "delete"}},
	{"jobq_worker", "lease", []string{"select", "insert", "update", "delete"}},
	{"jobq_worker", "past_lease", []string{"select", "insert"}},
	{"jobq_worker", "worker", []string{"select", "insert", "update", "delete"}},
	{"jobq_viewer", "pending", []string{"select"}},
	{"jobq_viewer", "job", []string{"select"}},
	{"jobq_viewer", "audit", []string{"select"}},
	{"jobq_admin", "pending", []string{"select", "insert", "update", "delete"}},
	{"jobq_admin", "audit", []string{"insert"}},
}

// roleExcess is what a role of sql/roles.sql must not be able to do with a table.
var roleExcess = []struct {
	role, table string
	privileges  []string
}{
	{"jobq_producer", "pending", []string{"select", "update", "delete"}},
	{"jobq_producer", "lease", []string{"select", "insert", "update", "delete"}},
	{"jobq_producer", "run", []string{"select", "insert", "update", "delete"}},
	{"jobq_web", "pending", []string{"select", "insert", "update", "delete"}},
	{"jobq_web", "run", []string{"select", "insert", "update", "delete"}},
	{"jobq_web", "job", []string{"select"}},
	{"jobq_viewer", "pending", []string{"insert", "update", "delete"}},
	{"jobq_viewer", "run", []string{"insert", "update", "delete"}},
	{"jobq_viewer", "lease", []string{"insert", "update", "delete"}},
	{"jobq_worker", "audit", []string{"insert", "update", "delete"}},
	{"jobq_admin", "lease", []string{"insert", "update", "delete"}},
}

// checkPrivileges looks at what everybody may do, and at the roles of
// sql/roles.sql as far as they have been given this schema.
func checkPrivileges(ctx context.Context, p *patient) (findings []Finding, err error) {
	public, err := p.names(ctx, `
		select format('%s on %s', lower(a.privilege_type), c.relname) from pg_class c cross join lateral aclexplode(c.relacl) a
		  where c.relnamespace = `+inSchema+` and a.grantee = 0
		union
		select format('execute on %s', p.proname) from pg_proc p cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
		  where p.pronamespace = `+inSchema+` and a.grantee = 0
		union
		select format('%s on the schema', lower(a.privilege_type)) from pg_namespace n cross join lateral aclexplode(n.nspacl) a
		  where n.nspname = $1 and a.grantee = 0
		order by 1`, p.schema.Name())
	if err != nil {
		return nil, err
	}
	if len(public) > 0 {
		findings = append(findings, Finding{
			Severity: Warning, Problem: "every role may: " + nameSome(public),
			Advice: "revoke it from public, and grant the roles of sql/roles.sql instead",
		})
	}
	var excess, missing []string
	for _, e := range roleExcess {
		if excess, err = p.appendPrivileges(ctx, excess, e.role, e.table, e.privileges, true); err != nil {
			return findings, err
		}
	}
	for _, n := range roleNeeds {
		if missing, err = p.appendPrivileges(ctx, missing, n.role, n.table, n.privileges, false); err != nil {
			return findings, err
		}
	}
	if len(excess) > 0 {
		findings = append(findings, Finding{
			Severity: Warning, Problem: "more than a role needs: " + nameSome(excess),
			Advice: "revoke it; sql/roles.sql has what each role needs",
		})
	}
	if len(missing) > 0 {
		findings = append(findings, Finding{
			Severity: Critical, Problem: "a role lacks: " + nameSome(missing),
			Advice: "run sql/roles.sql as the owner of the schema, as after each `jobq migrate up`",
		})
	}
	return findings, nil
}

// appendPrivileges adds those of the privileges that the role has, or lacks. A role
// that is not there, or has nothing to do with this schema, has nothing to lack.
func (p *patient) appendPrivileges(ctx context.Context, names []string, role, table string, privileges []string, has bool) ([]string, error) {
	found, err := p.names(ctx, `
		select format('%s: %s on %s', r.rolname, w.privilege, c.relname)
		  from pg_roles r
		  cross join pg_class c
		  cross join unnest($4::text[]) as w(privilege)
		  where r.rolname = $2 and not r.rolsuper and c.relnamespace = `+inSchema+` and c.relname = $3
		    and has_schema_privilege(r.oid, c.relnamespace, 'usage') and has_table_privilege(r.oid, c.oid, w.privilege) = $5
		    and not exists (select from aclexplode(c.relacl) a where a.grantee = 0 and lower(a.privilege_type) = w.privilege) -- that is said of public
		  order by 1`, p.schema.Name(), role, table, privileges, has)
	for _, name := range found {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, err
}
