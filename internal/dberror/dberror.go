// Package dberror says in the caller's words what the database answered: which of
// jobq's errors a refusal, a timeout or a lost connection stands for. It also sends
// a statement again that PostgreSQL rolled back because of another transaction.
package dberror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobq-dev/jobq/internal/db"
)

// The errors that callers branch on. Package jobq documents them.
var (
	ErrNotFound    = errors.New("no such job")
	ErrConflict    = errors.New("conflict")
	ErrDuplicate   = errors.New("unique key is held by another job")
	ErrInvalid     = errors.New("invalid value")
	ErrTimeout     = errors.New("it took too long")
	ErrUnavailable = errors.New("the database is not available")
)

// OfCode is the error that stands for an SQLSTATE of jobq's functions, or nil for
// one that is not theirs.
func OfCode(code string) error {
	switch code {
	case db.CodeInvalid:
		return ErrInvalid
	case db.CodeNotFound:
		return ErrNotFound
	case db.CodeConflict:
		return ErrConflict
	case db.CodeDuplicate:
		return ErrDuplicate
	}
	return nil
}

// NotFound is ErrNotFound in words that fit better than "no such job".
func NotFound(text string) error { return wordedError{ErrNotFound, text} }

// wordedError is one of the errors above in words that fit better.
type wordedError struct {
	is   error
	text string
}

func (e wordedError) Error() string { return e.text }

func (e wordedError) Unwrap() error { return e.is }

// Refused is the error that a code stands for, with the reason. For
// CodeNotFound the text is the reason alone, such as "no such action": that of
// ErrNotFound, "no such job", would be wrong or say it twice. A code that this
// build does not know leaves the reason.
func Refused(code, reason string) error {
	err := OfCode(code)
	switch {
	case err == nil:
		return errors.New(reason)
	case code == db.CodeNotFound:
		return wordedError{err, reason}
	default:
		return fmt.Errorf("%w: %s", err, reason)
	}
}

// ErrNoAction is of what the audit does not have.
var ErrNoAction = wordedError{ErrNotFound, "no such action"}

// unavailable is ErrUnavailable with a text for the cause, where the database did
// answer but could not do what it was asked: it is read-only, or another
// transaction held the rows.
func unavailable(err error) error {
	switch {
	case db.IsReadOnly(err):
		return wordedError{ErrUnavailable, "the database is read-only here"}
	case db.IsContention(err):
		return wordedError{ErrUnavailable, "another transaction was in the way"}
	}
	return ErrUnavailable
}

// triesMax is how many times Retry sends a statement, the first included.
const triesMax = 5

// Retry sends a statement again when PostgreSQL has rolled it back because of
// another transaction: after a deadlock, or after a serialization failure where
// the caller's pool uses a higher isolation level. It is not for statements in the
// caller's own transaction, since PostgreSQL has rolled that back too.
func Retry[T any](ctx context.Context, send func() (T, error)) (T, error) {
	backoff := db.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}
	for try := 1; ; try++ {
		result, err := send()
		if !db.IsContention(err) || try == triesMax || backoff.Wait(ctx) != nil {
			return result, err
		}
	}
}

// connectError is a failed attempt to connect, which tries each address of a
// host, with and without TLS: what all of them answered is said once.
type connectError struct {
	*pgconn.ConnectError
}

func (e connectError) Error() string {
	causes := []error{e.ConnectError.Unwrap()}
	if joined, ok := causes[0].(interface{ Unwrap() []error }); ok {
		causes = joined.Unwrap()
	}
	var texts []string
	seen := make(map[string]bool)
	for _, cause := range causes {
		key := cause.Error()
		var answer *pgconn.PgError
		if errors.As(cause, &answer) {
			key = answer.Error()
		}
		if !seen[key] {
			seen[key] = true
			texts = append(texts, cause.Error())
		}
	}
	return fmt.Sprintf("connect as user %s to database %s: %s", e.Config.User, e.Config.Database, strings.Join(texts, "; "))
}

func (e connectError) Unwrap() error { return e.ConnectError }

// NeedRole adds to an error that says that a right is missing which role has it. Other errors stay as they are.
func NeedRole(role string, err error) error {
	if role == "" || !db.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w: the login needs the role %s (sql/roles.sql)", err, role)
}

// Wrap says in the caller's words what the database said. It is nil for nil.
func Wrap(schema *db.Schema, operation string, err error) error {
	if err == nil {
		return nil
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		err = connectError{connect}
	}
	if code, reason, ok := db.Refused(err); ok {
		return fmt.Errorf("%s: %w", operation, Refused(code, reason))
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%s: %w", operation, ErrNotFound)
	case db.IsTimeout(err):
		return fmt.Errorf("%s: %w: %w", operation, ErrTimeout, err)
	case db.IsTransient(err):
		return fmt.Errorf("%s: %w: %w", operation, unavailable(err), err)
	case db.IsNotMigrated(err):
		return fmt.Errorf("%s: %w: %w", operation, db.NotMigrated(schema), err)
	}
	return fmt.Errorf("%s: %w", operation, NeedRole(schema.Role(), err))
}
