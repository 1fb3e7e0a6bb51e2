-- Who may call the functions, and where these look names up. It comes last.

-- Nobody but the owner and the roles that sql/roles.sql names may call a function. Names in the body of a function are
-- looked up when it runs, in the search_path of whoever calls it: an object that somebody else has put there first
-- would run with the caller's rights. So each function has a search_path of its own. A body of SQL that is no string
-- needs none: its names were looked up when it was made, and the planner can still put it in the place of the call.
-- Those that each insert calls go without, since a clause costs some microseconds a call: only functions that have one
-- call them.
do $$
declare
  f record;
begin
  for f in
    select p.oid::regprocedure as function,
        p.prosqlbody is null and not exists (select from unnest(p.proconfig) s where s like 'search_path=%')
          and p.proname not in ('pending_json_require', 'json_problem', 'json_problem_large') as looks_up
      from pg_proc p
      where p.pronamespace = (select c.relnamespace from pg_class c where c.oid = 'jobq.pending'::regclass)
  loop
    execute format('revoke execute on function %s from public', f.function);
    if f.looks_up then
      execute format('alter function %s set search_path = pg_catalog, pg_temp', f.function);
    end if;
  end loop;
end $$;
