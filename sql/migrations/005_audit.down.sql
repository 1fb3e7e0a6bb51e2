set local lock_timeout = '5s';

drop function jobq.undo(text, bigint);
drop function jobq.undo_job(text, jobq.audit_job);
drop function jobq.act_queue(text, text, text, text);
drop function jobq.act(text, text, bigint[], text[], text, bigint);
drop function jobq.audit_begin_many(text, text, text);
drop function jobq.audit_begin(text, text, text, text);
drop function jobq.job_lock(bigint, boolean);
drop table jobq.audit_job;
drop table jobq.audit;
