set local lock_timeout = '5s';

drop function jobq.schedule_turn();
drop function jobq.schedule_run(text, text);
drop function jobq.schedule_undo(text, jobq.audit);
drop function jobq.schedule_remove(text, text, text);
drop function jobq.schedule_resume(text, text, text);
drop function jobq.schedule_pause(text, text, text);
drop function jobq.schedule_lock(text);
drop function jobq.schedule_set(
  text, text, text, interval, text, jsonb, text, bigint, bigint, interval, interval, interval, text[], jsonb, text, text, integer, interval,
  text, text, text);
drop function jobq.schedule_put(jobq.schedule, text, text, boolean);
drop function jobq.schedule_wishes(jobq.schedule);
drop function jobq.schedule_record(text, text, text, text, jsonb, jsonb);
drop function jobq.schedule_problem(jobq.schedule);
drop function jobq.schedule_fire(text, bigint, timestamptz, timestamptz[], timestamptz, timestamptz);
drop function jobq.schedule_job(jobq.schedule, timestamptz);
drop table jobq.schedule_tick;
drop table jobq.schedule;
