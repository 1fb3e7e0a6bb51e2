-- WhyList is why a job is not running, or where it is: a row per reason, in the order
-- in which they are worth telling. One statement, and so one snapshot. Needs pending_claim_idx,
-- run_id_idx, attempt_job_id_idx and audit_job_job_id_idx.
-- name: WhyList :many
select w.reason::text as reason, w.facts::jsonb as facts
  from jobq.why(sqlc.arg(id)::bigint) w;
