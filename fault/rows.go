package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// This file, scenarios_lease.go and package check alone know in which tables the
// running and the finished jobs are. Scenarios read them in the view jobq.job.

// history is the table that has the finished jobs, partitioned by day of the claim.
const history = "run"

// lockRunning locks the lease of a running job until the transaction ends, as an
// extension does.
func lockRunning(ctx context.Context, tx pgx.Tx, id int64) error {
	_, err := tx.Exec(ctx, "select from jobq.lease where id = (select lease_token from jobq.job where id = $1) for update", id)
	return err
}

// lockRun locks the row of a running job until the transaction ends, as CompleteTx
// does: whoever ends or reaps the job passes it by.
func lockRun(ctx context.Context, tx pgx.Tx, id int64) error {
	_, err := tx.Exec(ctx, "select from jobq.run where id = $1 for update", id)
	return err
}

// extendLease extends the lease of a running job, which the transaction has
// locked, to three seconds from now.
func extendLease(ctx context.Context, tx pgx.Tx, id int64) error {
	_, err := tx.Exec(ctx, "update jobq.lease set expires_at = clock_timestamp() + interval '3 s' where id = (select lease_token from jobq.job where id = $1)", id)
	return err
}
