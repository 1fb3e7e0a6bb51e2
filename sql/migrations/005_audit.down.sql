set local lock_timeout = '5s';

drop function jobq.undo(text, bigint);
drop function jobq.undo_job(text, jobq.audit_job);
drop function jobq.act_settings(text, interval, text);
drop function jobq.act_queue(text, text, text, text);
drop function jobq.queue_known(text);
drop function jobq.act_drain(text, text);
drop function jobq.act_clone(text, bigint, jsonb);
drop function jobq.act(text, text, bigint[], text[], jsonb[], text, bigint, jsonb);
drop function jobq.act_problem(text, bigint[], jsonb);
drop function jobq.change_problem(jsonb, text[]);
drop function jobq.job_edit(bigint, jsonb, jsonb);
drop function jobq.audit_resume(text, bigint);
drop function jobq.audit_begin_many(text, text, text, jsonb, timestamptz, bigint, integer);
drop function jobq.audit_begin(text, text, text, text, jsonb);
drop function jobq.job_lock(bigint, boolean);
drop table jobq.audit_job;
drop table jobq.audit;
