set local lock_timeout = '5s';

drop function jobq.why(bigint);
drop function jobq.why_ended(bigint, jsonb);
drop function jobq.why_running(bigint, bigint, text);
drop function jobq.why_waiting(bigint, text, text, text, smallint, bigint, jsonb);
drop function jobq.why_turn(text, text, bigint);
drop function jobq.why_key_runs(text, text);
drop function jobq.why_oldest(bigint);
drop function jobq.why_kind(bigint, bigint);
drop function jobq.why_first(bigint[], smallint[]);
drop function jobq.line_heads(text, integer);
drop function jobq.key_held(text, text, integer, text);
drop function jobq.why_before(text, text, smallint, bigint, bigint);
drop function jobq.why_janitor();
drop function jobq.why_table_locked(text[]);
drop function jobq.why_row_locked(xid, oid);
drop function jobq.why_session(integer);
