package db

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pins are the settings of a session on which statements of jobq depend. A database or a role may have other values.
// Example: after `alter role app set search_path = public, pg_catalog`, a function that a stranger has made in public would
// run in the place of PostgreSQL's own, with the rights of the worker.
//
// HotSettings and the clauses of functions come on top. Not here is default_transaction_read_only: who sets it for a
// database means to stop all writes, as before a switch to another server.
var pins = []struct {
	name, value string
	yields      bool // to a value in the connection's own settings
	optional    bool // not every version has it
}{
	{name: "search_path", value: "pg_catalog, pg_temp"},
	{name: "client_encoding", value: "UTF8"},
	{name: "standard_conforming_strings", value: "on"},
	{name: "array_nulls", value: "on"},
	{name: "transform_null_equals", value: "off"},
	{name: "quote_all_identifiers", value: "off"},
	{name: "DateStyle", value: "ISO, MDY"},
	{name: "IntervalStyle", value: "postgres"},
	{name: "TimeZone", value: "UTC"},
	{name: "timezone_abbreviations", value: "Default"},
	{name: "extra_float_digits", value: "1"},
	{name: "bytea_output", value: "hex"},
	{name: "default_transaction_isolation", value: "read committed"},
	{name: "default_transaction_deferrable", value: "off"},
	{name: "row_security", value: "off"}, // a table with row security then refuses the statement, and does not seem empty
	{name: "check_function_bodies", value: "on"},
	{name: "jobq.notify", value: "on"},
	// Each call has a deadline of its own, and a statement that may have to wait says for how long.
	{name: "statement_timeout", value: "0", yields: true},
	{name: "lock_timeout", value: "0", yields: true},
	{name: "idle_in_transaction_session_timeout", value: "60s", yields: true},
	{name: "idle_session_timeout", value: "0", yields: true},
	{name: "transaction_timeout", value: "0", yields: true, optional: true},
	// What plans need: see HotSettings.
	{name: "plan_cache_mode", value: "auto"},
	{name: "enable_indexscan", value: "on"},
	{name: "enable_indexonlyscan", value: "on"},
	{name: "enable_seqscan", value: "on"},
	{name: "enable_bitmapscan", value: "on"},
	{name: "enable_hashjoin", value: "on"},
	{name: "enable_hashagg", value: "on"},
	{name: "enable_nestloop", value: "on"},
	{name: "enable_sort", value: "on"},
	{name: "enable_partition_pruning", value: "on"},
	{name: "from_collapse_limit", value: "8"},
	{name: "join_collapse_limit", value: "8"},
	{name: "jit", value: "off"},
}

// startupPins are those that every pooler takes when a connection begins. pgx needs the first two at once: without them it
// refuses to send a statement in the simple protocol.
var startupPins = map[string]string{
	"client_encoding": "UTF8", "standard_conforming_strings": "on", "DateStyle": "ISO, MDY", "TimeZone": "UTC",
}

// pinTimeout is how long the server may take to answer, as when it is busy.
const pinTimeout = 30 * time.Second

// pinned marks a connection in its custom data.
const pinned = "jobq_pinned"

// PinPool has each connection of a pool, of jobq's own, pin its session when it is opened.
func PinPool(config *pgxpool.Config) { pinPool(config, func() bool { return false }) }

// Pin is PinPool for a worker's or janitor's pool. It also pins the sessions behind a pooler, once they are known not to be shared.
func (s *Schema) Pin(config *pgxpool.Config) { pinPool(config, s.owned.Load) }

func pinPool(config *pgxpool.Config, owned func() bool) {
	pinStartup(config.ConnConfig)
	before := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		return pin(ctx, conn, owned())
	}
}

func pinStartup(config *pgx.ConnConfig) {
	for name := range config.RuntimeParams {
		for pinned := range startupPins {
			if strings.EqualFold(name, pinned) {
				delete(config.RuntimeParams, name)
			}
		}
	}
	maps.Copy(config.RuntimeParams, startupPins)
}

// pin sets the pins in the session of a connection, if the session is its own: a setting would stay in a session
// that a pooler shares, and meet other clients. It is its own if the server process has the number that the connection was
// given when it began, or if that is known. A timeout of the database's or role's own may end the statement that is to switch
// it off: it is sent again.
func pin(ctx context.Context, conn *pgx.Conn, owned bool) error {
	custom := conn.PgConn().CustomData()
	if custom[pinned] != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	sql := pinSQL(conn.Config().RuntimeParams, false)
	if !owned {
		sql += fmt.Sprintf(" from (select) as session where pg_catalog.pg_backend_pid() operator(pg_catalog.=) %d", int32(conn.PgConn().PID())) // #nosec G115 -- as the server has it
	}
	for {
		tag, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		if IsAnswer(err) && IsTimeout(err) && ctx.Err() == nil {
			continue
		}
		if tag.RowsAffected() > 0 {
			custom[pinned] = true
		}
		return err
	}
}

// PinLocalSQL is a query that sets the pins for its transaction, whose session may be shared.
func PinLocalSQL() string { return pinSQL(nil, true) }

// pinSQL is a query that sets the pins, but for those that yield to the connection's own settings. It means the
// same whatever the settings before it are.
func pinSQL(own map[string]string, local bool) string {
	var calls []string
	for _, p := range pins {
		if _, ok := own[p.name]; ok && p.yields {
			continue
		}
		call := fmt.Sprintf("pg_catalog.set_config('%s', '%s', %t)", p.name, p.value, local)
		if p.optional {
			call = fmt.Sprintf("case when pg_catalog.current_setting('%s', true) is not null then %s end", p.name, call)
		}
		calls = append(calls, call)
	}
	return "select " + strings.Join(calls, ", ")
}
