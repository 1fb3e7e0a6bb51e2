set local lock_timeout = '5s';

drop trigger run_unique_key_drop_at_once on jobq.run;
drop trigger run_unique_key_drop on jobq.run;
drop trigger pending_after_update on jobq.pending;
drop trigger pending_after_insert on jobq.pending;
drop trigger pending_wake on jobq.pending;
drop trigger pending_before_insert on jobq.pending;
drop function jobq.run_unique_key_drop();
drop function jobq.pending_after_update();
drop function jobq.pending_after_insert();
drop function jobq.lane_come(text, text[]);
drop function jobq.pending_wake();
drop function jobq.pending_before_insert();
drop function jobq.unique_key_drop(text, text, bigint);
drop function jobq.unique_key_problem(text, text, bigint);
drop function jobq.unique_key_take(text, text, bigint, timestamptz);
drop function jobq.wake(text, text);
drop function jobq.channel(text);
