// Package monitor shows what happens in the database: queues and what waits in
// them, schedules and their ticks, workers, statistics, failures, the runs of a job
// and their output, what operators did, and what workers do at this moment. It changes
// no job and no setting: Watch alone writes, that somebody watches. The database role
// jobq_viewer is enough for all of it. [jobq.Client] finds the jobs themselves: Get,
// List and Count.
package monitor

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
)

// Monitor reads the database of a client. It is safe for concurrent use, keeps no
// state, and needs no closing.
type Monitor struct {
	pool    db.Pool
	direct  *pgxpool.Config // for listening; nil: as the pool
	schema  *db.Schema
	queries *db.Queries
}

// New returns a monitor of the client's database. It does not talk to the database. With a client that is nil,
// each call returns jobq.ErrInvalid.
func New(client *jobq.Client) *Monitor {
	if client == nil {
		schema, none := db.SchemaOf("", ""), db.NoPool{Err: fmt.Errorf("%w: the client is nil", jobq.ErrInvalid)}
		return &Monitor{pool: none, schema: schema, queries: schema.Queries(none)}
	}
	schema := db.SchemaOf(client.Schema(), client.Sessions())
	schema.NeedRole(db.RoleViewer)
	return &Monitor{pool: client.Pool(), direct: client.Listen(), schema: schema, queries: schema.Queries(client.Pool())}
}
