package jobq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/await"
	"github.com/jobq-dev/jobq/internal/db"
)

// Client enqueues jobs, finds them, waits for them and cancels them. It is safe for
// concurrent use and needs no closing: the pool is the caller's, and it has a connection
// and goroutines of its own only while somebody waits.
type Client struct {
	pool    *pgxpool.Pool
	schema  *db.Schema
	queries *db.Queries
	waiters *await.Waiters
	codec   Codec           // nil for none
	listen  *pgxpool.Config // nil: as the pool

	middleware []EnqueueMiddleware // nil for none
}

// Sessions says whether each connection of the pool has a session of the server
// to itself. A pooler such as PgBouncer in transaction mode shares sessions: then
// jobq prepares no statements, listens to nothing, and its workers and janitors
// take no lock that outlives a transaction; but see [Config].Listen.
type Sessions = db.Sessions

// What can be said of sessions.
const (
	SessionsAuto   = db.SessionsAuto   // find out
	SessionsOwn    = db.SessionsOwn    // each connection has its own: there is no such pooler
	SessionsShared = db.SessionsShared // there may be one
)

// Config changes what a Client does. The zero value is ready to use.
type Config struct {
	// Schema is the schema that holds jobq's tables: letters, digits, _ and -, at most
	// 63 bytes. Default "jobq".
	Schema string
	// Sessions spares workers, janitors and monitors the search for a
	// pooler, or corrects what they find. Default SessionsAuto.
	Sessions Sessions
	// Listen says how to connect for notifications where the pool leads through a pooler
	// that shares sessions: a direct connection to the same database. Make it with pgxpool.ParseConfig;
	// its hooks are called as the pool's are, and it is copied. Workers, Wait and
	// monitor.Watch listen there, on one connection each, and do all else on the pool; the
	// janitor that leads has its connection there. Default nil: these connections are made as
	// the pool's are.
	Listen *pgxpool.Config
	// Codec encodes the args of jobs that the client adds, and the checkpoints, results and steps
	// of its workers, before they are stored, and decodes them for handlers and for Get.
	// Package keyring has one that encrypts. Default nil: all is stored as it is.
	Codec Codec
	// Middleware wraps every enqueue, the first one outermost. Default: none.
	Middleware []EnqueueMiddleware
}

// NewClient returns a client on the pool. It does not talk to the database:
// call [Client.Check] to find out early whether the tables are there. A nil
// config means the defaults. The error is about the config.
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
	sessions := cmp.Or(config.Sessions, SessionsAuto)
	if err := sessions.Validate(); err != nil {
		return nil, err
	}
	schema.Assume(sessions)
	var listen *pgxpool.Config
	if config.Listen != nil {
		if config.Listen.ConnConfig == nil {
			return nil, errors.New("jobq client: Listen must be made with pgxpool.ParseConfig")
		}
		listen = config.Listen.Copy()
	}
	return &Client{
		pool: pool, schema: schema, queries: schema.Queries(pool), waiters: await.New(pool, listen, schema),
		codec: config.Codec, listen: listen, middleware: slices.Clone(config.Middleware),
	}, nil
}

// Check returns ErrNotMigrated or ErrNewerSchema when this build cannot work
// with the tables in the database, and says what to do. Tables that a later jobq has
// changed are no error as long as they are compatible: see docs/upgrade.md. Where the pool prepares
// statements, it also finds out whether that is safe: see [Config].Sessions. A
// client that was never checked learns it from its first statement that fails,
// and sends that one again. It is an error, too, when [Config].Listen leads to another
// database than the pool, and none when it leads nowhere for now.
func (c *Client) Check(ctx context.Context) error {
	if err := db.CheckVersion(ctx, c.pool, c.schema); err != nil {
		return err
	}
	if err := db.CheckListen(ctx, c.listen, c.pool); err != nil {
		return err
	}
	if !db.NamesStatements(c.pool.Config().ConnConfig) {
		return nil
	}
	if sessions, err := c.schema.FindSessions(ctx, c.pool); sessions == "" {
		return fmt.Errorf("look for a pooler: %w", err)
	}
	return nil
}

// Pool is the pool that the client works on.
func (c *Client) Pool() *pgxpool.Pool { return c.pool }

// Sessions is what the client was told of sessions, or SessionsShared when it has
// found out since that they are.
func (c *Client) Sessions() Sessions { return c.schema.Sessions() }

// Listen is how to connect for notifications, as [Config].Listen said; nil for as the pool
// does. Do not change it.
func (c *Client) Listen() *pgxpool.Config { return c.listen }

// Codec is what encodes the client's jobs; nil for nothing.
func (c *Client) Codec() Codec { return c.codec }

// Schema is the name of the schema that holds jobq's tables.
func (c *Client) Schema() string { return c.schema.Name() }
