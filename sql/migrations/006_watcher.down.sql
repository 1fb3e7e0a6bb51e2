set local lock_timeout = '5s';

drop function jobq.watch_end(text);
drop function jobq.watch(text, interval);
drop function jobq.tell(text, bigint[]);
drop table jobq.digest;
drop table jobq.watcher;
