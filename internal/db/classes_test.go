package db_test

import (
	"bufio"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Of all codes that the server knows, by its own list, only these say that a
// value is bad: an error that nobody has thought of is blamed on no run.
func TestBadValuesAreAFewCodes(t *testing.T) {
	t.Parallel()
	var list string
	err := pgtest.Connect(t, pgtest.EmptyURL(t)).QueryRow(context.Background(),
		"select pg_read_file(setting || '/errcodes.txt') from pg_config where name = 'SHAREDIR'").Scan(&list)
	require.NoError(t, err)
	entry := regexp.MustCompile(`^([0-9A-Z]{5})\s+[EWS]\s`)
	count := 0
	for lines := bufio.NewScanner(strings.NewReader(list)); lines.Scan(); {
		found := entry.FindStringSubmatch(lines.Text())
		if found == nil {
			continue
		}
		count++
		code := found[1]
		bad := strings.HasPrefix(code, "22") && code != "22P03" || // data
			code == "23502" || code == "23514" || // not null, check
			code == "54000" || code == "54001" // a limit, nested too deeply
		err := &pgconn.PgError{Code: code, ConstraintName: "some_check"}
		require.Equal(t, bad, db.IsBadValue(err), code)
		require.False(t, db.IsBadValue(err) && db.IsTransient(err), code)
	}
	require.Greater(t, count, 250)
	require.False(t, db.IsBadValue(&pgconn.PgError{Code: "54000", Routine: "PreCommit_Notify"}), "the queue of notifications is full")
	require.False(t, db.IsBadValue(&pgconn.PgError{Code: "23514"}), "no partition takes the row")
	require.False(t, db.IsBadValue(context.Canceled))
	require.False(t, db.IsBadValue(nil))
}
