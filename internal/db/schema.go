package db

import (
	"crypto/md5" // #nosec G501 -- names a channel as the SQL function does; nothing secret
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/mutant"
)

// DefaultSchema is where the tables live unless told otherwise.
const DefaultSchema = "jobq"

// schemaPattern allows what can stand in a quoted identifier and in a string
// literal alike, so that no file of SQL needs two kinds of escaping.
var schemaPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// identifierBytesMax is PostgreSQL's limit (NAMEDATALEN - 1); it would cut a
// longer name silently.
const identifierBytesMax = 63

// ValidateSchema says what is wrong with a schema's name, if anything.
func ValidateSchema(schema string) error {
	if len(schema) > identifierBytesMax {
		return fmt.Errorf("schema name has %d bytes, the limit is %d", len(schema), identifierBytesMax)
	}
	if !schemaPattern.MatchString(schema) {
		return fmt.Errorf("schema name %q: use letters, digits, _ and -, beginning with a letter or _", schema)
	}
	if strings.HasPrefix(schema, "pg_") {
		return fmt.Errorf("schema name %q: names that begin with pg_ belong to PostgreSQL", schema)
	}
	return nil
}

// Render puts the schema's quoted name where the SQL says `jobq.`. The SQL is
// ours, and has these five characters only where they name the schema.
func Render(sql, schema string) string {
	return strings.ReplaceAll(sql, "jobq.", pgx.Identifier{schema}.Sanitize()+".")
}

// Channel is the name of a NOTIFY channel, as the SQL function jobq.channel
// computes it. It stays below 64 bytes whatever the schema is called.
func Channel(schema, topic string) string {
	sum := md5.Sum([]byte(Render("jobq.", schema))) // #nosec G401 -- see the import
	return "jobq_" + topic + "_" + hex.EncodeToString(sum[:])[:16]
}

// Topics of NOTIFY channels; the SQL function jobq.channel says what each carries.
const (
	TopicWork   = "work"
	TopicHead   = "head"
	TopicTaken  = "taken" // a worker has claimed after a notification of new jobs, and left none
	TopicDue    = "due"
	TopicCancel = "cancel"
	TopicDrain  = "drain" // a worker is to
	TopicWatch  = "watch" // somebody watches
	TopicEvent  = "event" // a worker has told something, in a row
	// TopicSchedule says that somebody has changed a schedule.
	TopicSchedule = "schedule"
	// TopicRoom says that a queue which was at its limit has room.
	TopicRoom = "room"
	// TopicSettings says that the limits of a queue have changed, or that it has its first job with a partition key.
	TopicSettings = "settings"
	// TopicEnded says of jobs that somebody waits for that they may have ended.
	TopicEnded = "ended"
)

// Schema renders the generated queries for one schema, and remembers them.
// search_path would be no way: PgBouncer refuses it at start-up, SET leaks
// under transaction pooling, and a caller's transaction has its own.
type Schema struct {
	name     string
	rendered sync.Map    // query as generated -> query for this schema
	sessions Sessions    // as told
	shared   atomic.Bool // sessions are, as told or found out
	owned    atomic.Bool // each connection has its own session, likewise
	role     string      // see NeedRole
}

// NewSchema returns the renderer for a schema whose name is valid.
func NewSchema(name string) (*Schema, error) {
	if name == "" {
		name = DefaultSchema
	}
	if err := ValidateSchema(name); err != nil {
		return nil, err
	}
	return &Schema{name: name, sessions: SessionsAuto}, nil
}

// SchemaOf returns the renderer for the schema of a client, which has checked the
// name: another name is a mistake in this module, and SchemaOf panics.
func SchemaOf(checkedName string, sessions Sessions) *Schema {
	schema, err := NewSchema(checkedName)
	if err != nil {
		panic(err)
	}
	schema.Assume(sessions)
	return schema
}

// Assume says what is known of the sessions, before the schema is used.
func (s *Schema) Assume(sessions Sessions) {
	s.sessions = sessions
	s.shared.Store(sessions == SessionsShared)
	s.owned.Store(sessions == SessionsOwn)
}

// Sessions is what is known of the sessions: what was told, or that they are shared
// when that has been found out since.
func (s *Schema) Sessions() Sessions {
	if s.shared.Load() {
		return SessionsShared
	}
	return s.sessions
}

// NeedRole says which role of sql/roles.sql the statements need, for errors; before the schema is used.
func (s *Schema) NeedRole(role string) { s.role = role }

// Role is the role that NeedRole was told, "" without.
func (s *Schema) Role() string { return s.role }

// The roles of sql/roles.sql that errors name.
const (
	RoleAdmin    = "jobq_admin"
	RoleProducer = "jobq_producer"
	RoleViewer   = "jobq_viewer"
)

// Name is the schema's name, unquoted.
func (s *Schema) Name() string { return s.name }

// SQL is the query for this schema.
func (s *Schema) SQL(query string) string {
	if sql, ok := s.rendered.Load(query); ok {
		return sql.(string)
	}
	sql := Render(mutant.SQL(query), s.name)
	s.rendered.Store(query, sql)
	return sql
}

// Queries runs the generated queries against this schema, on a pool, a
// connection or a caller's transaction.
func (s *Schema) Queries(conn DBTX) *Queries {
	return New(schemaDBTX{sender{schema: s, conn: conn}})
}
