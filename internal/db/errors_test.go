package db_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Which errors pass by themselves, and which would come back for ever.
func TestIsTransient(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"08006", "08P01", "25006", "40001", "40P01", "53100", "53300", "55P03", "57P01", "57P02", "57P03", "57014"} {
		require.True(t, db.IsTransient(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code})), code)
	}
	for _, code := range []string{"22P05", "22003", "23505", "23514", "23502", "42P01", "42501", "54001", "55000", "28P01", "3D000"} {
		require.False(t, db.IsTransient(&pgconn.PgError{Code: code}), code)
	}
	require.True(t, db.IsTransient(&pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery"}), "a plan was prepared before a column was added")
	require.False(t, db.IsTransient(&pgconn.PgError{Code: "0A000"}))
	require.True(t, db.IsTransient(&pgconn.PgError{Code: "54000", Routine: "PreCommit_Notify"}), "the queue of notifications is full")
	require.False(t, db.IsTransient(&pgconn.PgError{Code: "54000", Routine: "index_form_tuple"}))
	for _, err := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.DeadlineExceeded,
		&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, errors.New("conn closed"),
	} {
		require.True(t, db.IsTransient(fmt.Errorf("wrapped: %w", err)), err.Error())
	}
	for _, err := range []error{nil, context.Canceled, errors.New("anything else")} {
		require.False(t, db.IsTransient(err))
	}
}

// What a database that answers says of why it cannot do it now.
func TestWhyUnavailable(t *testing.T) {
	t.Parallel()
	require.True(t, db.IsReadOnly(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: "25006"})))
	require.False(t, db.IsReadOnly(&pgconn.PgError{Code: "40P01"}))
	for _, code := range []string{"40P01", "40001"} {
		require.True(t, db.IsContention(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code})))
	}
	require.False(t, db.IsContention(&pgconn.PgError{Code: "57P01"}))
}

// What says that other connections are as useless as the one that failed.
func TestIsStale(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&pgconn.PgError{Code: "25006"}, &pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "57P03"}, &pgconn.PgError{Code: "08006"},
		io.ErrUnexpectedEOF, &net.OpError{Op: "read", Err: errors.New("connection reset by peer")},
	} {
		require.True(t, db.IsStale(fmt.Errorf("wrapped: %w", err)), err.Error())
	}
	for _, err := range []error{
		nil, &pgconn.PgError{Code: "40P01"}, &pgconn.PgError{Code: "57014"}, &pgconn.PgError{Code: "23505"}, context.DeadlineExceeded, context.Canceled,
	} {
		require.False(t, db.IsStale(err), "%v", err)
	}
}

// Retry goes on while errors pass by themselves, and stops at the first other
// one, at success, and with the context.
func TestRetry(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	transient, permanent := &pgconn.PgError{Code: "40P01"}, &pgconn.PgError{Code: "23514"}
	calls := 0
	require.NoError(t, db.Retry(ctx, func(context.Context) error {
		if calls++; calls < 3 {
			return transient
		}
		return nil
	}))
	require.Equal(t, 3, calls)
	calls = 0
	require.ErrorIs(t, db.Retry(ctx, func(context.Context) error {
		calls++
		return permanent
	}), permanent)
	require.Equal(t, 1, calls)
	canceled, cancel := context.WithCancel(ctx)
	require.ErrorIs(t, db.Retry(canceled, func(context.Context) error {
		cancel()
		return transient
	}), transient, "what went wrong says more than that time was up")
}

// The waits grow to the longest, are never nothing, and begin anew after a success.
func TestBackoff(t *testing.T) {
	t.Parallel()
	backoff := db.Backoff{Min: time.Millisecond, Max: 4 * time.Millisecond}
	for _, longest := range []time.Duration{1, 2, 4, 4} {
		start := time.Now()
		require.NoError(t, backoff.Wait(context.Background()))
		require.GreaterOrEqual(t, time.Since(start), longest*time.Millisecond/2)
	}
	backoff.Reset()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	slow := db.Backoff{Min: time.Hour}
	require.ErrorIs(t, slow.Wait(ctx), context.Canceled)
}

// One code of PostgreSQL's has several causes: what the server says of them is not mixed up.
func TestOneCodeHasSeveralCauses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn, err := pgtest.Pool(t).Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	fail := func(sql string) error {
		_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		require.Error(t, err)
		return err
	}
	for _, sql := range []string{"prepare cached as select * from jobq.setting", "alter table jobq.setting add added integer"} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
	require.True(t, db.IsTransient(fail("execute cached")))
	require.False(t, db.IsTransient(fail("insert into jobq.stats default values")), "not supported, today and tomorrow")
	reason, invalid := db.Invalid(fail(`select '"\u0000"'::jsonb`))
	require.True(t, invalid)
	require.Contains(t, reason, "NUL")
	_, err = conn.Exec(ctx, "set client_encoding = LATIN1", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	reason, invalid = db.Invalid(fail("select chr(8364)"))
	require.True(t, invalid)
	require.Contains(t, reason, "encoding")
	require.NotContains(t, reason, "NUL")
}
