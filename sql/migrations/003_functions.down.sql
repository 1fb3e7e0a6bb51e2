set local lock_timeout = '5s';

drop function jobq.default_prune(text, integer);
drop function jobq.partition_prune(text);
drop function jobq.partition_add(text, date);
drop function jobq.partition_yield(regclass, regclass[]);
drop function jobq.backoff_delay(integer, interval, interval);
drop function jobq.delete_job(bigint);
drop function jobq.requeue(bigint);
drop function jobq.args_require(bigint);
drop function jobq.cancel(bigint);
drop function jobq.enqueue_many(jsonb);
drop function jobq.enqueue_arrays(
  text[], jsonb[], text[], integer[], timestamptz[], interval[], integer[], text[], interval[], interval[], interval[], jsonb[], jsonb[]);
drop function jobq.enqueue(
  text, jsonb, text, integer, timestamptz, integer, text, interval, interval, interval, text[], jsonb);
drop view jobq.stats;
drop view jobq.job;
