set local lock_timeout = '5s';

drop table
  jobq.pending, jobq.running, jobq.finished, jobq.attempt, jobq.payload, jobq.unique_key,
  jobq.queue, jobq.worker, jobq.event, jobq.setting, jobq.stat_delta, jobq.stat;
drop sequence jobq.job_id_seq, jobq.position_seq, jobq.waiting_seq;
drop function jobq.args_bytes_max();
drop type jobq.job_state, jobq.attempt_outcome;
