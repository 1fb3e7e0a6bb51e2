-- For sqlc alone, read before the migrations: they run in a schema that
-- `jobq migrate up` has made, whatever its name is.
create schema jobq;

-- rivermigrate's table of what was applied, with a column of ours: see migrate/driver.go.
create table jobq.jobq_migration (version integer primary key, created_at timestamptz not null default now(),
    compatible_from integer not null);
