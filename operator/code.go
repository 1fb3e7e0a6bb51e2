package operator

import (
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Code says why a call was refused, or an action on one job: the SQLSTATE with
// which the SQL functions raise the same. docs/sql.md lists them.
type Code string

// The codes, and the errors that stand for them.
const (
	CodeInvalid   Code = db.CodeInvalid   // jobq.ErrInvalid
	CodeNotFound  Code = db.CodeNotFound  // jobq.ErrNotFound
	CodeConflict  Code = db.CodeConflict  // jobq.ErrConflict
	CodeDuplicate Code = db.CodeDuplicate // jobq.ErrDuplicate
)

// Err is the error that stands for the code, or nil for a code that is none of these.
func (c Code) Err() error { return dberror.OfCode(string(c)) }
