-- For sqlc alone, read before the migrations: they run in a schema that
-- `jobq migrate up` has made, whatever its name is.
create schema jobq;
