package pgtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/postgres"
)

const (
	// emptyTemplate takes no connections: nobody can be in the way of a copy.
	emptyTemplate    = "template0"
	migratedTemplate = "jobq_template"
	// fileCopyVersion is the first with a choice of how to copy a database.
	fileCopyVersion = 150000
	// cleanTimeout is what sessions get to end after their clients have.
	cleanTimeout = 5 * time.Second
	cleanPoll    = 5 * time.Millisecond
)

// server is a server with a way to make and drop databases.
type server struct {
	postgres *postgres.Server
	admin    *pgxpool.Pool // on the database postgres
	strategy string        // of create database
	serial   atomic.Int64
}

// process holds this test process's server. The functions of a test process
// share nothing else than the process, so it is a package's variable, which
// code outside of tests must not have.
var process struct {
	once   sync.Once
	server *server
	err    error
}

// shared returns the server of this test process, which the first caller
// starts. It belongs to no test, so no test's context ends it.
func shared() (*server, error) {
	process.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		process.server, process.err = startServer(ctx)
	})
	return process.server, process.err
}

func stopShared() error {
	process.once.Do(func() {}) // no test asked for it: then there is none to stop
	if process.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return process.server.stop(ctx)
}

// config is for many small databases at once, in memory, so with a short log
// of changes; and for deadlocks to be found soon.
func config() postgres.Config {
	return postgres.Config{InMemory: true, Settings: map[string]string{
		"max_connections": "500", "shared_buffers": "64MB", "deadlock_timeout": "50ms",
		"max_wal_size": "256MB", "min_wal_size": "32MB", "max_prepared_transactions": "10",
	}}
}

func startServer(ctx context.Context) (*server, error) {
	private, err := postgres.Start(ctx, config())
	if err != nil {
		return nil, err
	}
	s := &server{postgres: private}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	return s, nil
}

func (s *server) stop(ctx context.Context) error {
	if s.admin != nil {
		s.admin.Close()
	}
	return s.postgres.Stop(ctx)
}

// prepare makes the template, which takes no connections once it is finished.
func (s *server) prepare(ctx context.Context) error {
	var err error
	if s.admin, err = pgxpool.New(ctx, s.postgres.URL("postgres")); err != nil {
		return err
	}
	var version int
	if err := s.admin.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&version); err != nil {
		return err
	}
	if version >= fileCopyVersion {
		s.strategy = "strategy file_copy" // without fsync much faster than through the log
	}
	if _, err := s.admin.Exec(ctx, "create database "+migratedTemplate); err != nil {
		return err
	}
	if err := Migrate(ctx, s.postgres.URL(migratedTemplate), "jobq"); err != nil {
		return fmt.Errorf("template database: %w", err)
	}
	if err := s.checkPublic(ctx, migratedTemplate); err != nil {
		return fmt.Errorf("template database: %w", err)
	}
	_, err = s.admin.Exec(ctx, "alter database "+migratedTemplate+" with is_template true allow_connections false")
	return err
}

// create copies a template to a new database, whose name says for whom.
func (s *server) create(ctx context.Context, template, test string) (string, error) {
	safe := strings.Map(func(char rune) rune {
		if char >= 'a' && char <= 'z' || char >= '0' && char <= '9' {
			return char
		}
		return '_'
	}, strings.ToLower(test))
	name := fmt.Sprintf("t%d_%.40s", s.serial.Add(1), safe)
	_, err := s.admin.Exec(ctx, fmt.Sprintf("create database %s template %s %s", name, template, s.strategy))
	if err != nil {
		return "", fmt.Errorf("test database: %w", err)
	}
	return name, nil
}

func (s *server) drop(ctx context.Context, name string) error {
	if _, err := s.admin.Exec(ctx, "drop database "+name+" with (force)"); err != nil {
		return fmt.Errorf("drop of the test database: %w", err)
	}
	return nil
}

// awaitClean waits until the database has no advisory lock and no open
// transaction, and says who has them if they stay. Sessions that do nothing
// may be open still: clients close them without waiting.
func (s *server) awaitClean(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	var left []string
	for ctx.Err() == nil {
		found, err := s.leftovers(ctx, name)
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		if left = found; len(left) == 0 {
			return s.checkPublic(ctx, name)
		}
		timer := time.NewTimer(cleanPoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return fmt.Errorf("the test has left in its database: %s", strings.Join(left, "; "))
}

func (s *server) leftovers(ctx context.Context, name string) ([]string, error) {
	rows, err := s.admin.Query(ctx, `
		select format('advisory lock %s/%s of process %s', l.classid, l.objid, coalesce(l.pid::text, 'none (prepared)'))
		from pg_locks l join pg_database d on d.oid = l.database
		where d.datname = $1 and l.locktype = 'advisory'
		union all
		select format('transaction of process %s, %s since %s: %s', a.pid, a.state, a.xact_start, left(a.query, 200))
		from pg_stat_activity a
		where a.datname = $1 and (a.xact_start is not null or a.state like 'idle in transaction%') and a.backend_type = 'client backend'
		union all
		select format('prepared transaction %s', p.gid) from pg_prepared_xacts p where p.database = $1`, name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// checkPublic refuses what jobq must not put outside of its schema: anything
// in the template, which no test has touched, and partitions of its tables in
// a test's database, where the test may have tables of its own.
func (s *server) checkPublic(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.postgres.URL(name))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // the database is dropped next, or was only read
	rows, err := conn.Query(ctx, `
		select c.relname::text from pg_class c
		where c.relnamespace = 'public'::regnamespace and ($1 or exists (
		  select from pg_inherits i join pg_class parent on parent.oid = i.inhparent
		  where i.inhrelid = c.oid and parent.relnamespace <> c.relnamespace))
		union all
		select p.proname::text from pg_proc p where p.pronamespace = 'public'::regnamespace and $1
		order by 1`, name == migratedTemplate)
	if err != nil {
		return err
	}
	strays, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if len(strays) > 0 {
		return fmt.Errorf("jobq has put into the schema public: %s", strings.Join(strays, ", "))
	}
	return nil
}
