package jobqtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobq-dev/jobq/internal/db"
)

// prefix begins the names of all databases that this package makes:
//
//	jobqtest_HASH_template  a template; HASH is of all that it was made of
//	jobqtest_HASH_KEY       the database of a test, or a template that is being made
//
// KEY is the number of an advisory lock, which the session that has made the database
// holds until it has dropped it. So a database without a lock is one that a
// killed process has left behind.
const prefix = "jobqtest_"

// server is a session on the test server. It holds the advisory lock whose number is in the
// names of the databases that it makes.
type server struct {
	url  string
	conn *pgx.Conn
	key  string   // 16 hexadecimal digits
	made []string // databases to drop
}

// connect opens a session and takes its lock, before a database has the key in its name.
func connect(ctx context.Context, url string) (*server, error) {
	config, err := db.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("test server: %w", err)
	}
	conn, err := db.Connect(ctx, config, func(settings *pgx.ConnConfig) {
		settings.RuntimeParams["application_name"] = "jobqtest"
		// The session does nothing while the test runs, and must not be ended for it.
		settings.RuntimeParams["idle_session_timeout"] = "0"
	})
	if err != nil {
		return nil, fmt.Errorf("test server: %w", err)
	}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		db.Close(conn, db.CloseTimeout)
		return nil, err
	}
	s := &server{url: url, conn: conn, key: hex.EncodeToString(random[:])}
	if err := s.exec(ctx, "select pg_advisory_lock(('x' || $1)::bit(64)::bigint)", s.key); err != nil {
		s.close()
		return nil, fmt.Errorf("test server: %w", err)
	}
	return s, nil
}

func (s *server) close() { db.Close(s.conn, db.CloseTimeout) }

func (s *server) exec(ctx context.Context, sql string, args ...any) error {
	_, err := s.conn.Exec(ctx, sql, args...)
	return err
}

// name is the name of this session's database that is made from the template.
func (s *server) name(template string) string {
	return strings.TrimSuffix(template, "template") + s.key
}

// create makes a database from a template, which end drops.
func (s *server) create(ctx context.Context, name, template string) error {
	s.made = append(s.made, name) // before, since a call that was interrupted may have made it
	err := s.exec(ctx, "create database "+name+" template "+template)
	if err != nil && strings.Contains(err.Error(), "permission denied") {
		return fmt.Errorf("%w: the role needs the right CREATEDB", err)
	}
	return err
}

// drop drops a database, if it is there, whoever is connected.
func (s *server) drop(ctx context.Context, name string) error {
	err := s.exec(ctx, "drop database if exists "+name+" with (force)")
	if isMissing(err) { // another session was faster
		return nil
	}
	return err
}

// dropTemplate drops a database that may be a template, if it is there.
func (s *server) dropTemplate(ctx context.Context, name string) error {
	if err := s.exec(ctx, "alter database "+name+" with is_template false"); err != nil && !isMissing(err) {
		return err
	}
	return s.drop(ctx, name)
}

func isMissing(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "3D000"
}

// forget removes a database from those that end drops: it is a finished template, or is gone.
func (s *server) forget(name string) {
	s.made = slices.DeleteFunc(s.made, func(made string) bool { return made == name })
}

// sweep drops what killed processes have left behind, and old templates. Several sessions may
// do so at once. It logs what cannot be dropped, which the next test tries again.
func (s *server) sweep(ctx context.Context, logf func(format string, args ...any)) {
	rows, err := s.conn.Query(ctx, `
		select d.datname from pg_database d
			where pg_has_role(d.datdba, 'usage') and (
			  d.datname ~ '^jobqtest_[0-9a-f]{12}_[0-9a-f]{16}$' and not exists (
			    select from pg_locks l
			    where l.locktype = 'advisory' and l.objsubid = 1
			      and lpad(to_hex(l.classid::bigint), 8, '0') || lpad(to_hex(l.objid::bigint), 8, '0') = right(d.datname, 16))
			  or d.datname ~ '^jobqtest_[0-9a-f]{12}_template$'
			    and now() - substring(shobj_description(d.oid, 'pg_database') from $1)::timestamptz > interval '14 days')
			order by 1 limit 100`, usedPattern)
	if err != nil {
		logf("jobqtest: databases left behind: %v", err)
		return
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		err = errors.Join(err, s.dropTemplate(ctx, name))
	}
	if err != nil {
		logf("jobqtest: databases left behind: %v", err)
	}
}

// withDatabase is the URL or key=value string of another database of the server.
func withDatabase(server, name string) string {
	if address, err := url.Parse(server); err == nil && strings.HasPrefix(address.Scheme, "postgres") {
		address.Path, address.RawPath = "/"+name, ""
		query := address.Query()
		query.Del("dbname") // it would win
		query.Del("database")
		address.RawQuery = query.Encode()
		return address.String()
	}
	return strings.TrimSpace(server) + " dbname=" + name // the last one counts
}

// lockOf is the number of the advisory lock under which a template is made.
func lockOf(template string) int64 {
	number, err := strconv.ParseInt(strings.Split(template, "_")[1], 16, 64)
	if err != nil {
		panic("template name " + template) // not one of ours
	}
	return number
}
