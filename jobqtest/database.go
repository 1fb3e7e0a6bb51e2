package jobqtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
)

// URLVariable names the environment variable with the test server's URL.
const URLVariable = "JOBQ_TEST_DATABASE_URL"

const (
	// timeout is the longest time of each task for a test, except for a template.
	timeout = 60 * time.Second
	// closeTimeout is how long the connections of a test may stay in use after its end.
	closeTimeout = 5 * time.Second
)

// Options say where a test's database is made, and of what. The zero value is ready
// to use where JOBQ_TEST_DATABASE_URL is set.
type Options struct {
	// URL leads to a server on which databases may be made and dropped: a URL or a
	// key=value string. The role needs the right CREATEDB. No pooler may be in between,
	// since each test needs a session of its own. The database that the URL names is not
	// changed. Default: JOBQ_TEST_DATABASE_URL (URLVariable).
	URL string
	// Schema is the schema for jobq's tables. Default "jobq".
	Schema string
	// Prepare makes the application's own tables in the template, after jobq's. It runs
	// once for all tests, and must not keep connections. Default: nothing.
	Prepare func(ctx context.Context, pool *pgxpool.Pool) error
	// Version names what Prepare makes, such as a hash of its migrations. Each version has
	// a template of its own, so change it whenever Prepare changes. Required with Prepare.
	// Default "".
	Version string
}

// Database is a database with jobq's tables, and with what Options.Prepare has made.
type Database struct {
	// URL leads to it, for programs.
	URL string
	// Pool is connected to it.
	Pool *pgxpool.Pool
	// Client is jobq's client on the pool.
	Client *jobq.Client
}

// New makes a database for the test, and drops it when the test has ended. Tests
// may do so in parallel, and in several processes. Nil options mean the defaults.
//
// The database is a copy of a template, which the first test makes and which stays on
// the server for later ones: one for each version of jobq's tables, schema name, role
// and Options.Version. New also drops what killed test processes have left behind, and
// templates that nobody has used for two weeks. It fails the test if there is no
// server, or no right to make databases.
func New(tb TB, options *Options) *Database {
	tb.Helper()
	if options == nil {
		options = &Options{}
	}
	url := options.URL
	if url == "" {
		url = os.Getenv(URLVariable)
	}
	if url == "" {
		tb.Fatalf("jobqtest: no server to make a test's database on: set %s to its URL; `jobq dev` starts one", URLVariable)
	}
	if options.Prepare != nil && options.Version == "" {
		tb.Fatalf("jobqtest: Options.Prepare needs an Options.Version, such as a hash of your migrations: " +
			"without one, a template of an earlier Prepare would be used for ever")
	}
	database, err := open(tb, url, options)
	if err != nil {
		tb.Fatalf("jobqtest: %v", err)
	}
	return database
}

func open(tb TB, url string, options *Options) (_ *Database, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	var pool *pgxpool.Pool
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end(pool))
		}
	}()
	template, err := s.template(options)
	if err != nil {
		return nil, err
	}
	ctx, cancel = context.WithTimeout(context.Background(), timeout) // again: the template may have taken long
	defer cancel()
	name := s.name(template)
	if err := s.create(ctx, name, template); err != nil {
		return nil, fmt.Errorf("test database: %w", err)
	}
	s.sweep(ctx, tb.Logf) // last, since the template may have been an old one until now
	own := withDatabase(url, name)
	if pool, err = pgxpool.New(ctx, own); err != nil {
		return nil, err
	}
	client, err := jobq.NewClient(pool, &jobq.Config{Schema: options.Schema, Sessions: jobq.SessionsOwn})
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() {
		if err := s.end(pool); err != nil {
			tb.Errorf("jobqtest: %v", err)
		}
	})
	return &Database{URL: own, Pool: pool, Client: client}, nil
}

// end closes the pool, if any, drops the database, if it was made, and disconnects.
func (s *server) end(pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var inUse error
	if pool != nil {
		closed := make(chan struct{})
		go func() {
			pool.Close()
			close(closed)
		}()
		patience := time.NewTimer(closeTimeout)
		defer patience.Stop()
		select {
		case <-closed:
		case <-patience.C:
			// Code that still uses a connection gets an error when the database is dropped.
			inUse = fmt.Errorf("%d connections of the test's pool are in use after the test", pool.Stat().AcquiredConns())
		}
	}
	var dropped error
	for _, name := range s.made {
		if err := s.drop(ctx, name); err != nil {
			dropped = errors.Join(dropped, fmt.Errorf("drop of the test database: %w", err))
		}
	}
	s.close()
	return errors.Join(inUse, dropped)
}
