package doctor

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/db"
)

// CheckNames are the names of all checks, in their order.
func CheckNames() (names []string) {
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// Objects is what objects.txt is to have for the schema jobq of a database.
func Objects(ctx context.Context, pool *pgxpool.Pool) (lines []string, err error) {
	schema, err := db.NewSchema("jobq")
	if err != nil {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, db.PinLocalSQL(), pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		lines, err = (&patient{schema: schema, tx: tx}).readObjects(ctx)
		return err
	})
	return lines, err
}
