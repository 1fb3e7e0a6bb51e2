-- For sqlc alone, read after the migrations. Columns that it must believe in:
-- every table has a ctid and an xmax. PostgreSQL never sees this file.
alter table jobq.pending add column ctid tid, add column xmax xid;
alter table jobq.run add column ctid tid;
alter table jobq.lease add column ctid tid;
alter table jobq.progress add column ctid tid;
alter table jobq.stat_delta add column ctid tid;
alter table jobq.stat add column ctid tid;
alter table jobq.event add column ctid tid;
alter table jobq.output add column ctid tid;
