-- For sqlc alone, read after the migrations. Columns that it must believe in:
-- every table has a ctid, and what a DELETE may return from its USING clause
-- it looks for in the target table. PostgreSQL never sees this file.
alter table jobq.pending add column ctid tid;
alter table jobq.stat_delta add column ctid tid;
alter table jobq.running
  add column ctid tid,
  add column result jsonb,
  add column outcome text,
  add column error text,
  add column output text,
  add column delay interval,
  add column final boolean,
  add column started boolean;
