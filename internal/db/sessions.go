package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Sessions says whether a connection has a session of the server to itself.
type Sessions string

// The answers. A pooler such as PgBouncer in transaction mode gives a session to
// whoever begins the next transaction: a prepared statement, a setting, a lock
// or a LISTEN stays behind in it, and meets another client.
const (
	SessionsAuto   Sessions = "auto" // to be found out
	SessionsOwn    Sessions = "own"
	SessionsShared Sessions = "shared"
)

// Validate refuses other words.
func (s Sessions) Validate() error {
	switch s {
	case SessionsAuto, SessionsOwn, SessionsShared:
		return nil
	}
	return fmt.Errorf("sessions %q: must be %q, %q or %q", string(s), SessionsAuto, SessionsOwn, SessionsShared)
}

// probeTimeout bounds the search for a pooler, which takes 13 round trips, or
// about 60 when something stands between.
const probeTimeout = 10 * time.Second

// poolersMax is how many processes of a pooler may stand behind one address, as
// behind a load balancer or with so_reuseport, and still be found out: of that
// many connections and one more, two are with the same process.
const poolersMax = 5

// FindSessions returns what is known, or else finds out whether the open
// connection shares its session. It opens other connections for that, and leaves
// nothing in any session.
//
// Where the first connection answers and the second does not, as where a pooler
// has no session left, that is in doubt: the answer is then SessionsShared, which
// is always safe, with the reason as an error.
func FindSessions(ctx context.Context, known Sessions, conn *pgx.Conn, config *pgxpool.Config) (Sessions, error) {
	if known != SessionsAuto {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conns := []*pgx.Conn{conn}
	defer func() {
		for _, other := range conns[1:] {
			Close(other, CloseTimeout)
		}
	}()
	other, err := Connect(ctx, config, nil)
	if err != nil {
		return SessionsShared, fmt.Errorf("look for a pooler: %w", err)
	}
	conns = append(conns, other)
	sessions, direct, err := askSessions(ctx, conns)
	if err != nil {
		return SessionsShared, fmt.Errorf("look for a pooler: %w", err)
	}
	if sessions == SessionsShared || direct {
		return sessions, nil
	}
	// Something stands between. That these two share nothing may be because each is
	// with another process of it.
	ctx, cancelMore := context.WithTimeout(ctx, probeTimeout/2)
	defer cancelMore()
	for len(conns) <= poolersMax {
		if other, err = Connect(ctx, config, nil); err != nil {
			break
		}
		conns = append(conns, other)
	}
	if sessions, _, err = askSessions(ctx, conns); err != nil {
		return SessionsOwn, nil //nolint:nilerr // a pooler that has no session left for one more gives each its own
	}
	return sessions, nil
}

// askSessions asks open connections for the number of their server process, each
// twice and then the next, three times around, each time in a transaction of its
// own. It also says whether the numbers are those that the connections were given
// when they were opened, as without anything between.
//
// Without sharing, A has one number for ever and B another: 7 7 9 9 7 7 …. A
// pooler gives A's session to whoever comes next, so with the session used last,
// or with only one, B has A's number at once: 7 7 7. One that hands sessions out in
// turn is found out when A asks again: 7 8. One that picks them at random, of
// two, looks like the first with a chance of one in a thousand after 12 answers.
func askSessions(ctx context.Context, conns []*pgx.Conn) (sessions Sessions, direct bool, err error) {
	numbers := make(map[*pgx.Conn]uint32, len(conns))
	owners := make(map[uint32]*pgx.Conn, len(conns))
	direct = true
	for range 3 {
		for _, conn := range conns {
			for range 2 {
				var number uint32
				if err := conn.QueryRow(ctx, "select pg_catalog.pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&number); err != nil {
					return SessionsAuto, false, err
				}
				direct = direct && number == conn.PgConn().PID()
				before, asked := numbers[conn]
				owner, met := owners[number]
				if asked && before != number || met && owner != conn {
					return SessionsShared, false, nil
				}
				numbers[conn], owners[number] = number, conn
			}
		}
	}
	return SessionsOwn, direct, nil
}

// IsDirect says whether a connection ends at the server, and not at something between, such as a pooler.
func IsDirect(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var number uint32
	err := conn.QueryRow(ctx, "select pg_catalog.pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&number)
	return number == conn.PgConn().PID(), err
}

// NamesStatements says whether statements of such a connection can meet those of
// another client where sessions are shared: prepared ones by their names, and
// those described in one round trip and run in the next, which may be elsewhere.
func NamesStatements(config *pgx.ConnConfig) bool {
	return config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement || config.DefaultQueryExecMode == pgx.QueryExecModeDescribeExec
}

// NameNoStatements makes a connection safe where sessions are shared: each
// statement is sent whole. Settings that are safe already stay as they are.
func NameNoStatements(config *pgx.ConnConfig) {
	if !NamesStatements(config) {
		return
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	if config.DescriptionCacheCapacity == 0 {
		config.DescriptionCacheCapacity = 512 // pgx's default
	}
}

// NoteShared says whether an error shows that sessions are shared, unless it is
// known better, and remembers it.
func (s *Schema) NoteShared(err error) bool {
	if !IsForeignStatement(err) || s.sessions == SessionsOwn {
		return false
	}
	s.shared.Store(true)
	s.owned.Store(false)
	return true
}

// Protect has a pool's connections made safe that are opened after sessions are
// known to be shared. To be called before the pool is made.
func (s *Schema) Protect(config *pgxpool.Config) {
	before := config.BeforeConnect
	config.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		if s.shared.Load() {
			NameNoStatements(conn)
		}
		return nil
	}
}

// FindSessions finds out whether the pool's connections share sessions, and
// makes this schema's statements on it safe if they do. An error that comes with
// SessionsShared says why it is in doubt; another, that the pool has no connection.
func (s *Schema) FindSessions(ctx context.Context, pool *pgxpool.Pool) (Sessions, error) {
	sessions, doubt := s.sessions, error(nil)
	if sessions == SessionsAuto {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return "", err
		}
		sessions, doubt = FindSessions(ctx, sessions, conn.Conn(), pool.Config())
		conn.Release()
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
	s.owned.Store(sessions == SessionsOwn && !s.shared.Load())
	if sessions == SessionsShared {
		s.shared.Store(true)
	}
	return sessions, doubt
}
