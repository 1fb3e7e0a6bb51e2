package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/tui"
)

// asPanickingUI makes the test binary a UI that panics once this file exists.
const asPanickingUI = "JOBQ_TEST_PANICKING_UI"

// panickingUI is the UI as the command runs it, on connections that panic: in
// a query, or, with listener, where it hears events.
func panickingUI(flag, databaseURL string, listener bool) error {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	if listener {
		config.ConnConfig.AfterConnect = func(_ context.Context, conn *pgconn.PgConn) error {
			if conn.ParameterStatus("application_name") == "jobq-listen" {
				panicIf(flag)
			}
			return nil
		}
	} else {
		config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
			panicIf(flag)
			return true, nil
		}
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return err
	}
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	return tui.Run(context.Background(), &tui.Config{
		Poll:    !listener,
		Connect: func(context.Context, string) (*jobq.Client, tui.Context, error) { return client, tui.Context{}, nil },
	})
}

func panicIf(flag string) {
	if _, err := os.Stat(flag); err == nil {
		panic("as the test wants it")
	}
}

// A UI that fails gives the terminal back as it was, wherever it fails: in a
// query, or in what hears events. The shell then echoes what is typed, on the
// ordinary screen and with a cursor, and has the reason.
func TestTUIPanic(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{"query": "", "listener": "listener"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			flag := filepath.Join(t.TempDir(), "panic")
			term := openTerminal(t, 120, 35)
			sane := term.state()
			// After a panic Bubble Tea closes its reader while that reads: the race
			// detector's report of it is not to be on the screen.
			races := "GORACE=log_path=" + filepath.Join(t.TempDir(), "race")
			term.text(fmt.Sprintf("%s %s=%s '%s' '%s' %s", races, asPanickingUI, flag, os.Args[0], url, where))
			term.keys("Enter")
			if where == "" {
				term.await("Throughput")
			} else {
				term.await("● live")
			}
			require.NotEqual(t, sane, term.state())
			require.NoError(t, os.WriteFile(flag, nil, 0o600))
			if where != "" { // it connects anew, unless its self-test has done so already
				query[int](t, pgtest.Connect(t, url), "select count(pg_terminate_backend(pid))::int from pg_stat_activity where datname = current_database() and application_name = 'jobq-listen'")
			}
			term.await("program experienced a panic\nready>")
			require.Equal(t, sane, term.state())
			term.text("stty -a | grep -o ' icanon .* echo ' && echo terminal is sane")
			term.keys("Enter")
			term.await("\nterminal is sane")
		})
	}
}
