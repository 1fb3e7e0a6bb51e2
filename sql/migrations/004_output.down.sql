set local lock_timeout = '5s';

alter table jobq.worker drop column programs;
alter table jobq.attempt drop column usage;
drop table jobq.output;
