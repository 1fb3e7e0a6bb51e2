package jobqsql

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// encode makes of the arguments what each driver sends as it is: text as PostgreSQL reads it, or null. The
// statements of jobq say the type of each argument, such as $2::jsonb.
func encode(args []any) ([]any, error) {
	types := pgtype.NewMap()
	encoded := make([]any, 0, len(args))
	for i, arg := range args {
		oid := uint32(0)
		switch arg.(type) {
		case pgx.QueryExecMode: // how pgx is to send the statement; see the package's documentation
			continue
		case json.RawMessage:
			oid = pgtype.JSONBOID
		case []json.RawMessage:
			oid = pgtype.JSONBArrayOID
		case []string:
			oid = pgtype.TextArrayOID
		default:
			of, ok := types.TypeForValue(arg)
			if !ok && arg != nil {
				return nil, fmt.Errorf("argument %d has the type %T, which jobqsql cannot send", i+1, arg)
			}
			if ok {
				oid = of.OID
			}
		}
		text, err := types.Encode(oid, pgtype.TextFormatCode, arg, nil)
		switch {
		case err != nil:
			return nil, fmt.Errorf("argument %d: %w", i+1, err)
		case text == nil:
			encoded = append(encoded, nil)
		default:
			encoded = append(encoded, string(text))
		}
	}
	return encoded, nil
}

// rows give the rows of database/sql the calls of pgx.
type rows struct {
	found *sql.Rows // nil if there is only an error
	types *pgtype.Map
	err   error
}

func (r *rows) Close() {
	if r.found != nil {
		if err := r.found.Close(); err != nil && r.err == nil {
			r.err = answer(err)
		}
	}
}

func (r *rows) Err() error {
	if r.err == nil && r.found != nil {
		return answer(r.found.Err())
	}
	return r.err
}

func (r *rows) Next() bool { return r.found != nil && r.found.Next() }

func (r *rows) Scan(targets ...any) error {
	if r.found == nil {
		return r.err
	}
	into := make([]any, len(targets))
	for i, target := range targets {
		into[i] = target
		if oid, isOurs := oidOf(target); isOurs {
			into[i] = &value{types: r.types, oid: oid, target: target}
		}
	}
	return answer(r.found.Scan(into...))
}

// oidOf is the type of a column that database/sql cannot read into the target.
func oidOf(target any) (oid uint32, isOurs bool) {
	switch target.(type) {
	case *json.RawMessage, *[]json.RawMessage:
		return pgtype.JSONBOID, true
	case pgtype.TimestamptzScanner, *pgtype.Timestamptz:
		return pgtype.TimestamptzOID, true
	case pgtype.ArraySetter, *[]string:
		return pgtype.TextArrayOID, true
	}
	return 0, false
}

// value reads what a driver returns for a column as pgx would read it.
type value struct {
	types  *pgtype.Map
	oid    uint32
	target any
}

// Scan implements sql.Scanner.
func (v *value) Scan(source any) error {
	switch source := source.(type) {
	case nil:
		return v.types.Scan(v.oid, pgtype.TextFormatCode, nil, v.target)
	case string:
		return v.types.Scan(v.oid, pgtype.TextFormatCode, []byte(source), v.target)
	case []byte:
		return v.types.Scan(v.oid, pgtype.TextFormatCode, append([]byte(nil), source...), v.target)
	case time.Time:
		text, err := v.types.Encode(pgtype.TimestamptzOID, pgtype.TextFormatCode, source, nil)
		if err != nil {
			return err
		}
		return v.types.Scan(v.oid, pgtype.TextFormatCode, text, v.target)
	}
	return fmt.Errorf("a column has the type %T, which jobqsql cannot read", source)
}

// What else pgx.Rows has, and jobq does not use.

func (r *rows) CommandTag() pgconn.CommandTag { return pgconn.CommandTag{} }

func (r *rows) FieldDescriptions() []pgconn.FieldDescription { return nil }

func (r *rows) Values() ([]any, error) { return nil, errNoValues }

func (r *rows) RawValues() [][]byte { return nil }

func (r *rows) Conn() *pgx.Conn { return nil }

func (r *rows) TypeMap() *pgtype.Map { return r.types }

var errNoValues = errors.New("jobqsql reads rows only with Scan")
