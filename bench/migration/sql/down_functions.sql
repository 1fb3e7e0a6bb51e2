-- Back: functions of the second layout that the first one has not, or that are
-- left out in first_functions.sql.
drop function if exists
  jobq.run_end, jobq.unique_key_refuse, jobq.running_refuse, jobq.keep_from, jobq.keep_from_day, jobq.day_needed,
  jobq.partition_prune, jobq.payload_prune, jobq.default_prune, jobq.history_analyze,
  jobq.job_lock, jobq.act, jobq.queue_known, jobq.run_restore, jobq.undo_job, jobq.undo;
