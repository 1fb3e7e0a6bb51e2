-- Sessions and locks that jobs wait for. They have no snapshots: they are read as they are at the moment.

-- why_session is what may be seen of a session of the server. PostgreSQL hides all but the role of other roles'
-- sessions from roles that are not in pg_read_all_stats.
create function jobq.why_session(pid integer) returns jsonb
  language sql stable
  as $$
    select jsonb_strip_nulls(jsonb_build_object('pid', a.pid, 'role', a.usename, 'application',
        nullif(a.application_name, ''), 'state', a.state, 'since', a.xact_start, 'query', left(a.query, 200))
        - case when a.backend_start is null then array['query'] else '{}'::text[] end
        || jsonb_build_object('hidden', a.backend_start is null))
      from pg_catalog.pg_stat_activity a
      where a.pid = why_session.pid
  $$;

-- why_row_locked is the session that has locked a row or is changing it; null if there is none. A row's
-- xmax is the transaction that locked it last. It counts only while that transaction is open and
-- holds a lock on the row's table, too. If several transactions share a lock, xmax
-- is a number of another kind, and no session is found. A prepared transaction has no session.
create function jobq.why_row_locked(row_xmax xid, row_table oid) returns jsonb
  language sql stable
  as $$
    select coalesce(jobq.why_session(x.pid), (
          select jsonb_build_object('prepared', p.gid, 'role', p.owner, 'since', p.prepared)
            from pg_catalog.pg_prepared_xacts p where p.transaction = x.transactionid),
        jsonb_build_object('hidden', true))
      from pg_catalog.pg_locks x
      where x.locktype = 'transactionid' and x.granted and x.mode = 'ExclusiveLock'
        and x.transactionid = why_row_locked.row_xmax
        and exists (
          select from pg_catalog.pg_locks t
            where t.locktype = 'relation' and t.granted and t.virtualtransaction = x.virtualtransaction
              and t.relation = why_row_locked.row_table
              and t.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database()))
      limit 1
  $$;

-- why_table_locked is a session that has locked, in one of these modes, a table that claims write to; null if there is
-- none.
create function jobq.why_table_locked(modes text[]) returns jsonb
  language sql stable
  as $$
    select coalesce(jobq.why_session(l.pid), jsonb_build_object('hidden', true)) || jsonb_build_object('table',
        c.relname, 'mode', l.mode)
      from pg_catalog.pg_locks l
      join pg_catalog.pg_class c on c.oid = l.relation
      where l.locktype = 'relation' and l.granted and l.mode = any(why_table_locked.modes)
        and l.pid is distinct from pg_backend_pid()
        and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
        and c.relnamespace = (select p.relnamespace from pg_catalog.pg_class p where p.oid = 'jobq.pending'::regclass)
        and c.relname in ('pending', 'lease', 'run', 'queue')
      order by c.relname, l.pid
      limit 1
  $$;

-- why_janitor says whether a session holds the janitor's lock. A janitor behind a transaction pooler holds it only
-- while it works. A standby does not know of locks on its primary: then the answer is null.
create function jobq.why_janitor() returns jsonb
  language sql stable
  as $$
    select case when pg_is_in_recovery() then null else to_jsonb(exists (
      select from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objid = 1 and l.objsubid = 2
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
          and l.classid::bigint = (
            select ('x' || left(md5('jobq advisory lock ' || n.nspname), 8))::bit(32)::bigint
              from pg_catalog.pg_class p
              join pg_catalog.pg_namespace n on n.oid = p.relnamespace
              where p.oid = 'jobq.pending'::regclass))) end
  $$;
