set local lock_timeout = '5s';

drop function jobq.result(bigint);
drop trigger run_waiters_wake on jobq.run;
drop function jobq.run_waiters_wake();
drop function jobq.waiters_wake(bigint[], smallint[]);
drop function jobq.await_end(bigint);
drop function jobq.await(bigint, bigint[], bigint[], interval);
drop function jobq.waiters_forget();
drop table jobq.awaited;
drop table jobq.waiter;
