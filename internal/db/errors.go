package db

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Codes (SQLSTATEs) of our own, with which the functions of sql/schema refuse
// a call. docs/sql.md lists them for callers in other languages.
const (
	CodeInvalid   = "JQ001" // a value is beyond its limit
	CodeNotFound  = "JQ002" // there is no such job, action or worker
	CodeConflict  = "JQ003" // the job, queue or action is not in a state that allows it
	CodeDuplicate = "JQ004" // another unfinished job holds the unique key
	codeRunOver   = "JQ005" // the run has ended, or its lease is lost
)

// Codes of PostgreSQL errors that jobq tells apart (PostgreSQL documentation,
// appendix A).
const (
	codeNumericOutOfRange = "22003"
	codeTimeOutOfRange    = "22008"
	codeSpanOutOfRange    = "22015"
	codeBadEncoding       = "22021"
	codeBadBinary         = "22P03"
	codeInvalidParameter  = "22023"
	codeInvalidText       = "22P02"
	codeUntranslatable    = "22P05"
	codeReadOnly          = "25006"
	codeNotSupported      = "0A000"
	codeNotPrepared       = "26000"
	codeNotNull           = "23502"
	codeUnique            = "23505"
	codeCheck             = "23514"
	codeSerialization     = "40001"
	codeDeadlock          = "40P01"
	codeLimitExceeded     = "54000"
	codeOutOfMemory       = "53200"
	codeStatementTooDeep  = "54001"
	codeLockTimeout       = "55P03"
	codeForbidden         = "42501"
	codePreparedTwice     = "42P05"
	codeUndefinedTable    = "42P01"
	codeUndefinedSchema   = "3F000"
	codeUndefinedFunction = "42883"
)

// cachedPlanRoutine is PostgreSQL's function that refuses a plan whose table has changed, as after a migration.
const cachedPlanRoutine = "RevalidateCachedQuery"

// transientCodes end a statement for reasons that pass: another transaction,
// the server's state, or its want of resources. A class stands for all its codes.
var transientCodes = []string{
	"08",    // connection
	"25006", // read-only: a failover, the next connection may find the primary
	"40001", // serialization
	"40P01", // deadlock
	"53",    // resources: too many connections, disk full, out of memory
	"55P03", // lock not available in time
	"57P01", // admin shutdown
	"57P02", // crash shutdown
	"57P03", // starting up, or a standby not yet open
	"57014", // cancelled, such as by statement_timeout
	codePreparedTwice,
	codeNotPrepared,
}

// badValueCodes say that a value is at fault: with another value, the statement
// would succeed. This is all: whatever else the server says may be about itself,
// the tables, the privileges or a pooler in between, and no value is to blame.
var badValueCodes = []string{
	"22", // data: out of range, bad encoding, not JSON, …
	codeNotNull,
	codeCheck,
	codeLimitExceeded,
	codeStatementTooDeep,
	CodeInvalid,
}

// rowFaultCodes are those of IsRowFault. A class stands for all its codes.
var rowFaultCodes = []string{
	"21",    // more than one row
	"22",    // data
	"23",    // constraints
	"38",    // what functions of others say
	"39",    // likewise
	"54",    // limits
	"58030", // a page cannot be read
	"JQ",    // our functions
	"P0",    // raised by a function, such as a trigger of others
	"XX",    // corrupted data
}

func code(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// IsTransient says whether the same statement may succeed later, unchanged:
// the database is away, busy, or another transaction was in the way. Whether
// the statement took effect this time is unknown when the connection broke.
func IsTransient(err error) bool {
	if err == nil {
		return false
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		for _, transient := range transientCodes {
			if strings.HasPrefix(pgErr.Code, transient) {
				return true
			}
		}
		// A limit exceeded as others are, but one that passes: the queue of notifications is full. And what is not
		// supported as other things are not, but is on a fresh connection: "cached plan must not change result type".
		return pgErr.Code == codeLimitExceeded && pgErr.Routine == "PreCommit_Notify" ||
			pgErr.Code == codeNotSupported && pgErr.Routine == cachedPlanRoutine
	}
	if errors.Is(err, context.Canceled) {
		return false
	}
	if errors.Is(err, ErrBusy) {
		return true
	}
	var netErr net.Error
	var connectErr *pgconn.ConnectError
	return pgconn.SafeToRetry(err) || pgconn.Timeout(err) || errors.As(err, &connectErr) || errors.As(err, &netErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed")
}

// IsRowFault says that a statement for many rows may have failed because of a single one of them: its
// values, what a trigger says of it, or a page that cannot be read.
func IsRowFault(err error) bool {
	if !IsAnswer(err) || IsTransient(err) {
		return false
	}
	sqlState := code(err)
	return slices.ContainsFunc(rowFaultCodes, func(fault string) bool { return strings.HasPrefix(sqlState, fault) })
}

// IsForbidden says that the role lacks a privilege.
func IsForbidden(err error) bool { return code(err) == codeForbidden }

// IsAnswer says that the server has answered with an error, and goes on with the
// session.
func IsAnswer(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR"
}

// MayHaveCommitted says whether a transaction that failed with the error may have taken
// effect all the same: it may have been sent, and the server has not refused it.
func MayHaveCommitted(err error) bool {
	var connectErr *pgconn.ConnectError
	return err != nil && !IsAnswer(err) && !pgconn.SafeToRetry(err) && !errors.As(err, &connectErr)
}

// IsRefusal says that the server has answered, with an error that the same
// statement will meet again.
func IsRefusal(err error) bool { return code(err) != "" && !IsTransient(err) }

// IsBadValue says that the server refuses a value, such as a result that is too
// long, whenever it is sent. No other error may be blamed on what was to be stored.
func IsBadValue(err error) bool {
	sqlState := code(err)
	if IsTransient(err) || sqlState == codeBadBinary { // what arrives in binary form is pgx's, and meant for another statement
		return false
	}
	// A row that no partition takes has the code of a broken CHECK, and no value is to blame.
	if refused := new(pgconn.PgError); sqlState == codeCheck && errors.As(err, &refused) && refused.ConstraintName == "" {
		return false
	}
	return slices.ContainsFunc(badValueCodes, func(bad string) bool { return strings.HasPrefix(sqlState, bad) })
}

// IsUnreadable says that the server, or pgx, could not make something of what a statement was to
// return: a text that is too long, a page that is damaged, a character that UTF-8 lacks.
func IsUnreadable(err error) bool {
	var scan pgx.ScanArgError
	if errors.As(err, &scan) {
		return true
	}
	sqlState := code(err)
	if IsTransient(err) || sqlState == codeBadBinary || sqlState == codeInvalidParameter {
		return false
	}
	return strings.HasPrefix(sqlState, "22") || strings.HasPrefix(sqlState, "XX") || sqlState == codeLimitExceeded ||
		sqlState == codeStatementTooDeep || sqlState == codeCheck
}

// MayBeUnreadable says that a claim may have failed because of a job that cannot be read: IsUnreadable says so, the server has
// no memory for it, or it needs longer to make its text than the claim may take.
func MayBeUnreadable(err error) bool {
	return IsUnreadable(err) || code(err) == codeOutOfMemory || IsTimeout(err) && !IsLockTimeout(err)
}

// IsForeignStatement says that a prepared statement was there already, or was
// not: the session is, or was, another client's too. Nothing has been executed.
func IsForeignStatement(err error) bool {
	return code(err) == codePreparedTwice || code(err) == codeNotPrepared
}

// IsStale says that the server has gone, has ended the session, or has become
// a standby. Other connections from before are probably as useless: the pool
// should be reset, or each will fail in its turn, after a longer wait each time.
func IsStale(err error) bool {
	if sqlState := code(err); sqlState != "" {
		return sqlState == codeReadOnly || strings.HasPrefix(sqlState, "08") || strings.HasPrefix(sqlState, "57P")
	}
	return IsTransient(err) && !pgconn.Timeout(err) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrBusy)
}

// Refused says that a function of ours, or a limit of a table, has refused the
// call: with which of our codes, and why. ok is false for any other error.
func Refused(err error) (code, reason string, ok bool) {
	if reason, invalid := Invalid(err); invalid {
		return CodeInvalid, reason, true
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return "", "", false
	}
	switch pgErr.Code {
	case CodeNotFound, CodeConflict, CodeDuplicate:
		return pgErr.Code, pgErr.Message, true
	case codeUnique: // of a plain INSERT, by the trigger pending_before_insert
		return CodeDuplicate, pgErr.Message, true
	}
	return "", "", false
}

// IsRunOver says that a call named a run which has ended, or whose lease is lost.
func IsRunOver(err error) bool { return code(err) == codeRunOver }

// IsReadOnly says that the session cannot write: a standby, or one that was told so.
func IsReadOnly(err error) bool { return code(err) == codeReadOnly }

// IsOnPrimary says that a table which was asked for is not on a standby: an unlogged one.
func IsOnPrimary(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == codeNotSupported && pgErr.Routine != cachedPlanRoutine
}

// IsContention says that another transaction has kept this one from its end.
func IsContention(err error) bool {
	return code(err) == codeSerialization || code(err) == codeDeadlock
}

// IsNotMigrated says that a table, function or schema of ours is not there.
func IsNotMigrated(err error) bool {
	switch code(err) {
	case codeUndefinedTable, codeUndefinedSchema, codeUndefinedFunction:
		return true
	}
	return false
}

// Invalid explains a refused value in words that name the field and its
// limit; ok is false when the error is of another kind. The names of the
// CHECK constraints are sentences, made to be shown.
func Invalid(err error) (reason string, ok bool) {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return "", false
	}
	switch pgErr.Code {
	case CodeInvalid:
		return pgErr.Message, true
	case codeCheck:
		return pgErr.ConstraintName, true
	case codeNotNull:
		return pgErr.ColumnName + " must not be null", true
	case codeUntranslatable:
		if pgErr.Routine == "report_untranslatable_char" {
			return "the encoding of the database or of the client has no such character: " + pgErr.Message, true
		}
		return `JSON must not contain the NUL character (\u0000): PostgreSQL cannot store it`, true
	case codeBadEncoding:
		return "text must be valid UTF-8 without NUL bytes", true
	case codeStatementTooDeep:
		return "JSON is nested too deeply for PostgreSQL", true
	case codeLimitExceeded:
		if !IsTransient(err) {
			return "a value is too long for PostgreSQL as text: " + pgErr.Message, true
		}
	case codeNumericOutOfRange, codeTimeOutOfRange, codeSpanOutOfRange:
		return "number out of range: " + pgErr.Message, true
	case codeInvalidText, codeInvalidParameter:
		return strings.TrimSpace(pgErr.Message + " " + pgErr.Detail), true
	}
	return "", false
}

// IsLockTimeout says that a lock was not available within lock_timeout.
func IsLockTimeout(err error) bool { return code(err) == codeLockTimeout }

// IsTimeout says that the statement took longer than the server or the caller
// would wait, be it for a lock.
func IsTimeout(err error) bool {
	return code(err) == "57014" || IsLockTimeout(err) || errors.Is(err, context.DeadlineExceeded)
}
