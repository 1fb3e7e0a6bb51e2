package jobq

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/db"
)

// Client enqueues jobs and looks after them. It is safe for concurrent use,
// keeps no state, and needs no closing: the pool is the caller's.
type Client struct {
	pool    *pgxpool.Pool
	schema  *db.Schema
	queries *db.Queries
	actor   string
}

// Config changes what a Client does. The zero value is ready to use.
type Config struct {
	// Schema holds jobq's tables. Default "jobq". Letters, digits, _ and -,
	// at most 63 bytes.
	Schema string
	// Actor is who acts, in the audit. Default "unknown".
	Actor string
}

// NewClient returns a client on the pool. It does not talk to the database:
// call [Client.Check] to find out early whether the tables are there. A nil
// config means the defaults. The error is about the schema's name.
func NewClient(pool *pgxpool.Pool, config *Config) (*Client, error) {
	if pool == nil {
		return nil, errors.New("jobq client: the pool is nil")
	}
	if config == nil {
		config = &Config{}
	}
	schema, err := db.NewSchema(config.Schema)
	if err != nil {
		return nil, err
	}
	actor := config.Actor
	if actor == "" {
		actor = "unknown"
	}
	return &Client{pool: pool, schema: schema, queries: schema.Queries(pool), actor: actor}, nil
}

// Check returns ErrNotMigrated or ErrNewerSchema when this build cannot work
// with the tables in the database, and says what to do.
func (c *Client) Check(ctx context.Context) error {
	return db.CheckVersion(ctx, c.pool, c.schema)
}

// Pool is the pool that the client works on.
func (c *Client) Pool() *pgxpool.Pool { return c.pool }

// Schema is the name of the schema that holds jobq's tables.
func (c *Client) Schema() string { return c.schema.Name() }
