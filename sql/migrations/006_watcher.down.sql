set local lock_timeout = '5s';

drop function jobq.watch(text, interval);
drop table jobq.watcher;
