package jobq

import (
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

var (
	// ErrNotFound is returned when there is no job, action or worker with that id.
	ErrNotFound = dberror.ErrNotFound
	// ErrConflict is returned when the job is not in a state that allows the
	// call, such as a requeue of a running job.
	ErrConflict = dberror.ErrConflict
	// ErrDuplicate is returned by a requeue when another job of the same kind holds the
	// unique key, and by an enqueue with ConflictFail. Other enqueues return that job's id
	// instead.
	ErrDuplicate = dberror.ErrDuplicate
	// ErrInvalid is returned when a value is refused, by the database or before.
	// The text names the field and the limit.
	ErrInvalid = dberror.ErrInvalid
	// ErrTimeout is returned when the database has answered too late, by its
	// statement_timeout or the caller's deadline.
	ErrTimeout = dberror.ErrTimeout
	// ErrUnavailable is returned when the database does not answer, or cannot
	// for now.
	ErrUnavailable = dberror.ErrUnavailable
	// ErrNotMigrated is returned when the tables are missing or too old.
	ErrNotMigrated = db.ErrNotMigrated
	// ErrNewerSchema is returned when the tables are newer than this build, and no
	// longer work with it.
	ErrNewerSchema = db.ErrNewerSchema
)
