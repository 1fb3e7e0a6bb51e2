-- There: functions of the first layout that are another in the second, which
-- are made from sql/migrations right after, in the same transaction.
drop function if exists
  jobq.unique_keys_release, jobq.cancel, jobq.requeue, jobq.delete_job, jobq.partition_add;
