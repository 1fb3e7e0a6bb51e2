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
