-- LeaseHold keeps the caller's lease from being ended by others until the
-- transaction ends, for what else it writes in the job's name. Zero rows means
-- that the lease was lost. Needs running_pkey only.
-- name: LeaseHold :execrows
select r.id
  from jobq.running r
  where r.id = sqlc.arg(id) and r.lease_token = sqlc.arg(token) and r.lease_owner = sqlc.arg(owner)
  for key share;
