package jobq

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

var (
	// ErrNotFound is returned when there is no job, action or worker with that id.
	ErrNotFound = errors.New("no such job")
	// ErrConflict is returned when the job is not in a state that allows the
	// call, such as a requeue of a running job.
	ErrConflict = errors.New("conflict")
	// ErrDuplicate is returned by a requeue when another unfinished job of the
	// same kind holds the unique key. An enqueue returns that job's id instead.
	ErrDuplicate = errors.New("unique key is held by another job")
	// ErrInvalid is returned when a value is refused, by the database or before.
	// The text names the field and the limit.
	ErrInvalid = errors.New("invalid value")
	// ErrTimeout is returned when the database has answered too late, by its
	// statement_timeout or the caller's deadline.
	ErrTimeout = errors.New("it took too long")
	// ErrUnavailable is returned when the database does not answer, or cannot
	// for now.
	ErrUnavailable = errors.New("the database is not available")
	// ErrNotMigrated is returned when the tables are missing or too old.
	ErrNotMigrated = db.ErrNotMigrated
	// ErrNewerSchema is returned when the tables are newer than this build.
	ErrNewerSchema = db.ErrNewerSchema
)

// Code says why a call was refused, or an action on one job: the SQLSTATE with
// which the SQL functions raise the same. docs/sql.md lists them.
type Code string

// The codes, and the errors that stand for them.
const (
	CodeInvalid   Code = db.CodeInvalid   // ErrInvalid
	CodeNotFound  Code = db.CodeNotFound  // ErrNotFound
	CodeConflict  Code = db.CodeConflict  // ErrConflict
	CodeDuplicate Code = db.CodeDuplicate // ErrDuplicate
)

// Err is the error that stands for the code, or nil for a code that is none of these.
func (c Code) Err() error {
	switch c {
	case CodeInvalid:
		return ErrInvalid
	case CodeNotFound:
		return ErrNotFound
	case CodeConflict:
		return ErrConflict
	case CodeDuplicate:
		return ErrDuplicate
	}
	return nil
}

// wordedError is one of these errors in words that fit better.
type wordedError struct {
	is   error
	text string
}

func (e wordedError) Error() string { return e.text }

func (e wordedError) Unwrap() error { return e.is }

// refusedError is the error that a code stands for, with the reason. For
// CodeNotFound the text is the reason alone, such as "no such action": that of
// ErrNotFound, "no such job", would be wrong or say it twice. A code that this
// build does not know leaves the reason.
func refusedError(code Code, reason string) error {
	err := code.Err()
	switch {
	case err == nil:
		return errors.New(reason)
	case code == CodeNotFound:
		return wordedError{err, reason}
	default:
		return fmt.Errorf("%w: %s", err, reason)
	}
}

// errNoAction is of what the audit does not have.
var errNoAction = wordedError{ErrNotFound, "no such action"}

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

// retriedMax is how many times retried sends a statement, the first included.
const retriedMax = 5

// retried sends a statement again when PostgreSQL has rolled it back because of
// another transaction: after a deadlock, or after a serialization failure where
// the caller's pool uses a higher isolation level. It is not for statements in the
// caller's own transaction, since PostgreSQL has rolled that back too.
func retried[T any](ctx context.Context, send func() (T, error)) (T, error) {
	backoff := db.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}
	for try := 1; ; try++ {
		result, err := send()
		if !db.IsContention(err) || try == retriedMax || backoff.Wait(ctx) != nil {
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

// clientError says in the caller's words what the database said.
func (c *Client) clientError(operation string, err error) error {
	if err == nil {
		return nil
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		err = connectError{connect}
	}
	if code, reason, ok := db.Refused(err); ok {
		return fmt.Errorf("%s: %w", operation, refusedError(Code(code), reason))
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%s: %w", operation, ErrNotFound)
	case db.IsTimeout(err):
		return fmt.Errorf("%s: %w: %w", operation, ErrTimeout, err)
	case db.IsTransient(err):
		return fmt.Errorf("%s: %w: %w", operation, unavailable(err), err)
	case db.IsNotMigrated(err):
		return fmt.Errorf("%s: %w: %w", operation, db.NotMigrated(c.schema), err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}
