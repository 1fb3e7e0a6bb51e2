package doctor

import "context"

// The checks of what others have made on the database: publications, row security and such.

// checkReplicaIdentity finds tables without a replica identity: a publication that has them refuses their updates and
// deletes. It is the days that hold the rows of a partitioned table, so the parents are left out.
func checkReplicaIdentity(ctx context.Context, p *patient) ([]Finding, error) {
	tables, err := p.names(ctx, `
		select c.relname::text from pg_class c
		  where c.relnamespace = `+inSchema+` and c.relkind = 'r' and c.relpersistence = 'p'
		    and case c.relreplident
		      when 'd' then not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)
		      when 'i' then not exists (select from pg_index i where i.indrelid = c.oid and i.indisreplident)
		      else c.relreplident = 'n' end
		  order by 1 limit 100`, p.schema.Name())
	if err != nil || len(tables) == 0 {
		return nil, err
	}
	published, err := p.names(ctx, `
		select t.pubname::text from pg_publication_tables t join pg_publication b on b.pubname = t.pubname
		  where t.schemaname = $1 and t.tablename = any($2) and (b.pubupdate or b.pubdelete)
		  order by 1 limit 1`, p.schema.Name(), tables)
	if err != nil {
		return nil, err
	}
	finding := Finding{
		Severity: Warning, Problem: "tables without a replica identity: " + nameSome(tables) + "; a publication for all tables would stop the queue",
		Advice: "alter table TABLE replica identity full",
	}
	if len(published) > 0 {
		finding.Severity = Critical
		finding.Problem = "tables without a replica identity: " + nameSome(tables) + "; the publication " + published[0] + " has them, so the server refuses each update and delete of theirs"
	}
	return []Finding{finding}, nil
}

// checkRowSecurity finds tables with row security: a role for which no policy is sees no rows, without an error.
func checkRowSecurity(ctx context.Context, p *patient) ([]Finding, error) {
	tables, err := p.names(ctx, `
		select c.relname::text from pg_class c
		  where c.relnamespace = `+inSchema+` and c.relrowsecurity
		  order by 1 limit 100`, p.schema.Name())
	if err != nil || len(tables) == 0 {
		return nil, err
	}
	return []Finding{{
		Severity: Critical, Problem: "row security is on for " + nameSome(tables) + ": a worker whose role has no policy there finds no jobs, and gets no error",
		Advice: "alter table TABLE disable row level security; the roles of sql/roles.sql say who may do what",
	}}, nil
}

// checkSearchPath finds a schema public in which every role may create objects, as before PostgreSQL 15 and in databases
// that come from there. jobq's functions and its own connections do not look there; those of applications do.
func checkSearchPath(ctx context.Context, p *patient) ([]Finding, error) {
	writable, err := p.names(ctx, `
		select n.nspname::text from pg_namespace n cross join lateral aclexplode(n.nspacl) a
		  where n.nspname = 'public' and a.grantee = 0 and a.privilege_type = 'CREATE'`)
	if err != nil || len(writable) == 0 {
		return nil, err
	}
	return []Finding{{
		Severity: Note, Problem: "every role may create objects in the schema public: a program in whose search_path it is may call a stranger's function in the place of PostgreSQL's",
		Advice: "revoke create on schema public from public",
	}}, nil
}

// checkDefaults finds settings of the database or of a role that stop jobq, or the triggers on its tables. jobq's sessions have
// changed others.
func checkDefaults(ctx context.Context, p *patient) (findings []Finding, err error) {
	for _, setting := range []struct{ like, problem string }{
		{"default_transaction_read_only=on", "no job can be added, run or ended there"},
		{"session_replication_role=replica", "triggers do not fire there: unique keys, large args, wake-ups and waits do not work"},
	} {
		places, err := p.names(ctx, `
			select concat_ws(' of ', case when s.setrole <> 0 then 'role ' || s.setrole::regrole end, case when s.setdatabase <> 0 then 'this database' else 'all databases' end)
			  from pg_db_role_setting s
			  where s.setdatabase in (0, (select d.oid from pg_database d where d.datname = current_database())) and $1 = any(s.setconfig)
			  order by 1`, setting.like)
		if err != nil {
			return findings, err
		}
		if len(places) > 0 {
			findings = append(findings, Finding{
				Severity: Warning, Problem: setting.like + " is set for " + nameSome(places) + ": " + setting.problem,
				Advice: "alter database … reset, or alter role … reset, unless it is meant so",
			})
		}
	}
	return findings, nil
}
