set local lock_timeout = '5s';

drop trigger run_unique_key_drop_at_once on jobq.run;
drop trigger run_unique_key_drop on jobq.run;
drop trigger pending_lane_move on jobq.pending;
drop trigger pending_lane on jobq.pending;
drop trigger pending_due on jobq.pending;
drop trigger pending_wake on jobq.pending;
drop trigger pending_before_insert on jobq.pending;
drop function jobq.run_unique_key_drop();
drop function jobq.pending_lane_move();
drop function jobq.pending_lane();
drop function jobq.lane_come(text, text[]);
drop function jobq.pending_due();
drop function jobq.pending_wake();
drop function jobq.pending_before_insert();
drop function jobq.unique_key_take(text, text, bigint);
drop function jobq.wake(text, text);
drop function jobq.channel(text);
