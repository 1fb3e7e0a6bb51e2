package steps_test

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/steps"
)

// answers is a database that answers each statement with the next error, and then with
// rows of nothing.
type answers struct {
	db.DBTX
	errs []error
	sent int
}

func (a *answers) next() (err error) {
	a.sent++
	if len(a.errs) > 0 {
		err, a.errs = a.errs[0], a.errs[1:]
	}
	return err
}

func (a *answers) QueryRow(context.Context, string, ...any) pgx.Row { return row{a.next()} }

func (a *answers) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, a.next()
}

type row struct{ err error }

func (r row) Scan(...any) error { return r.err }

var (
	inTheWay = &pgconn.PgError{Code: "40001", SeverityUnlocalized: "ERROR"}
	conflict = &pgconn.PgError{Code: "JQ003", SeverityUnlocalized: "ERROR", Message: "step 'a' of job 1 is done already"}
)

// away is what a server that is not there answers.
func away(t *testing.T) error {
	t.Helper()
	_, err := pgconn.Connect(context.Background(), "host="+t.TempDir())
	require.Error(t, err)
	return err
}

func calls(t *testing.T, errs ...error) (steps.Calls, *answers) {
	t.Helper()
	schema, err := db.NewSchema("jobq")
	require.NoError(t, err)
	database := &answers{errs: errs}
	return steps.Calls{Schema: schema, DB: database, JobID: 1, Token: "1.1.1"}, database
}

// What has surely had no effect is sent again, and nothing else: after a lost answer, the
// run would be told that it has used the name already.
func TestSentAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, call := range map[string]func(steps.Calls) error{
		"begin": func(c steps.Calls) error { _, err := c.Begin(ctx, "a"); return err },
		"sleep": func(c steps.Calls) error { _, err := c.Sleep(ctx, "a", time.Hour); return err },
		"wait":  func(c steps.Calls) error { _, err := c.Wait(ctx, "a", time.Hour); return err },
	} {
		c, database := calls(t, inTheWay, away(t))
		require.NoError(t, call(c), name)
		require.Equal(t, 3, database.sent, name)
		for _, final := range []error{io.ErrUnexpectedEOF, conflict} {
			c, database = calls(t, final)
			require.Error(t, call(c), name)
			require.Equal(t, 1, database.sent, name)
		}
	}
	c, database := calls(t, slices.Repeat([]error{inTheWay}, 1000)...)
	ended, end := context.WithCancel(ctx)
	end()
	_, err := c.Begin(ended, "a")
	require.Error(t, err)
	require.Equal(t, 1, database.sent)
}

// A sleep or a wait has ended the run, or may have, unless the answer says that it has not,
// or the call surely had no effect.
func TestMayHaveEnded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	ended, end := context.WithCancel(ctx)
	end()
	over := &pgconn.PgError{Code: "JQ005", SeverityUnlocalized: "ERROR"}
	for name, test := range map[string]struct {
		ctx  context.Context
		errs []error
		want bool
	}{
		"not over yet":             {ctx, nil, true},
		"refused":                  {ctx, []error{conflict}, false},
		"the lease is lost":        {ctx, []error{over}, true},
		"no answer":                {ctx, []error{io.ErrUnexpectedEOF}, true},
		"away until it is stopped": {ended, []error{away(t)}, false},
		"in the way, likewise":     {ended, []error{inTheWay}, false},
		"stopped within the call":  {ended, []error{context.Canceled}, true},
	} {
		c, _ := calls(t, slices.Repeat(test.errs, 2)...)
		answer, err := c.Sleep(test.ctx, "a", time.Hour)
		require.Equal(t, test.errs != nil, err != nil, name)
		require.Equal(t, test.want, answer.MayHaveEnded, name)
		c, _ = calls(t, slices.Repeat(test.errs, 2)...)
		answer, _ = c.Wait(test.ctx, "a", time.Hour)
		require.Equal(t, test.want, answer.MayHaveEnded, name)
		c, _ = calls(t, slices.Repeat(test.errs, 2)...)
		awaited, _ := c.Await(test.ctx, "a", []int64{1})
		require.Equal(t, test.want, awaited.MayHaveEnded, name)
	}
}

// A result is sent until it is stored. That it is stored already is a conflict only if
// no try before can have done that.
func TestStoredAgain(t *testing.T) {
	t.Parallel()
	store := func(errs ...error) (int, error) {
		c, database := calls(t, errs...)
		err := c.Store(context.Background(), nil, "a", json.RawMessage("1"))
		return database.sent, err
	}
	sent, err := store(io.ErrUnexpectedEOF, away(t), inTheWay)
	require.NoError(t, err)
	require.Equal(t, 4, sent)
	sent, err = store(io.ErrUnexpectedEOF, conflict)
	require.NoError(t, err)
	require.Equal(t, 2, sent)
	_, err = store(conflict)
	require.ErrorIs(t, err, dberror.ErrConflict)
}
