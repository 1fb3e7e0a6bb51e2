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
// concurrent use and needs no closing. It uses the caller's pool, and has a connection
// and goroutines of its own only while a caller waits for a job.
type Client struct {
	pool    *pgxpool.Pool
	schema  *db.Schema
	queries *db.Queries
	waiters *await.Waiters
	codec   Codec           // nil for none
	listen  *pgxpool.Config // how to connect for notifications; nil: as the pool does

	middleware []EnqueueMiddleware // nil for none
}

// Sessions says whether each connection of the pool has a session of the server
// to itself. A pooler such as PgBouncer in transaction mode shares sessions: then
// jobq prepares no statements, listens to nothing, and its workers and janitors
// take no lock that outlives a transaction; but see [Config].Listen.
type Sessions = db.Sessions

// The values of Sessions.
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
	// Sessions tells workers, janitors and monitors whether a pooler shares sessions, so that
	// they need not find out. Default SessionsAuto: they find out.
	Sessions Sessions
	// Listen says how to make a direct connection to the same database for notifications. It
	// is for a pool that connects through a pooler that shares sessions. Make it with
	// pgxpool.ParseConfig; NewClient copies it, and its hooks are called as the pool's are.
	// Workers, Wait and monitor.Watch listen on one such connection each, and do all else on
	// the pool. The janitor that leads works on such a connection. Default nil: these
	// connections are made as the pool's are.
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
	if config.Codec != nil && db.IsNil(config.Codec) {
		return nil, errors.New("jobq client: the Codec is a nil pointer")
	}
	for i, middleware := range config.Middleware {
		if middleware == nil {
			return nil, fmt.Errorf("jobq client: Middleware[%d] is nil", i)
		}
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
// with the tables in the database; the text says what to do. Tables that a later jobq has
// changed are no error as long as they are compatible: see docs/upgrade.md.
//
// Check also returns an error when [Config].Listen connects to another database than the
// pool. It returns none when that connection cannot be made now.
//
// If the pool prepares statements, Check also finds out whether that is safe: see
// [Config].Sessions. A client without a Check learns it from the first statement that
// fails for this reason, and sends that statement again unless it is in a transaction.
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

// Sessions returns [Config].Sessions, or SessionsShared if the client has found out since
// that a pooler shares sessions.
func (c *Client) Sessions() Sessions { return c.schema.Sessions() }

// Listen returns [Config].Listen, which says how to connect for notifications; nil means as
// the pool does. The caller must not change it.
func (c *Client) Listen() *pgxpool.Config { return c.listen }

// Codec returns [Config].Codec, which encodes the client's jobs; nil for none.
func (c *Client) Codec() Codec { return c.codec }

// Schema is the name of the schema that holds jobq's tables.
func (c *Client) Schema() string { return c.schema.Name() }
