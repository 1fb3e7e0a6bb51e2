package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui"
)

// Limits on what the terminal UI may cost the database.
const (
	tuiConnections      = 3
	tuiStatementTimeout = "2s"
	tuiLockTimeout      = "500ms"
)

func newTUICommand(a *app) *cobra.Command {
	var config tui.Config
	var print, size, confirm string
	command := &cobra.Command{
		Use:   "tui",
		Short: "Watch and act on jobs in a terminal",
		Long: `Watch queues, jobs and workers live, and act on them. ? lists the keys.

What it asks of the database is bounded: it looks again at most every two
seconds, less often when answers are slow, and hears of changes from the
workers while it is open. Every action is in "jobq audit" and u undoes it.

A name with "prod" in it is painted and asks for typed confirmations.`,
		Example: `  jobq tui
  jobq tui --context prod --read-only
  jobq tui --open job/4711
  jobq tui --print overview --size 120x35   # one frame, without a terminal`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config.Confirm = confirm == "type"
			if print == "" && !isTerminal(cmd.OutOrStdout()) {
				return usagef("tui needs a terminal; `jobq stats --watch` works without one")
			}
			if !localeIsUTF8() {
				config.ASCII = true
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
			defer cancel()
			client, err := a.tuiClient(ctx, config.ReadOnly)
			if err != nil {
				return err
			}
			if print != "" {
				defer client.Pool().Close()
				return printFrame(ctx, cmd, client, &config, print, size)
			}
			return runUI(cmd.Context(), client, &config)
		},
	}
	flags := command.Flags()
	flags.StringVar(&config.Name, "context", os.Getenv("JOBQ_CONTEXT"), "what to call this database; with \"prod\" in it, actions ask for more")
	flags.StringVar(&confirm, "confirm", "", "\"type\" asks for typed confirmations whatever the name")
	flags.BoolVar(&config.ReadOnly, "read-only", os.Getenv("JOBQ_READ_ONLY") != "", "change nothing; the database's session enforces it")
	flags.BoolVar(&config.ASCII, "ascii", false, "draw with ASCII only")
	flags.BoolVar(&config.Poll, "poll-only", false, "do without live events, as behind a pooler")
	flags.StringVar(&config.Open, "open", "", "where to begin: overview, jobs, queues, workers, audit, job/ID")
	flags.StringVar(&print, "print", "", "write one frame of this screen and leave")
	flags.StringVar(&size, "size", "80x24", "with --print: columns and lines")
	return command
}

// runUI runs the UI and closes the client's pool. After a panic it does not: a
// connection may be in use still, for which closing would wait for ever.
func runUI(ctx context.Context, client *jobq.Client, config *tui.Config) error {
	err := tui.Run(ctx, client, config)
	if !errors.Is(err, tui.ErrPanic) {
		client.Pool().Close()
	}
	return err
}

func localeIsUTF8() bool {
	if term := os.Getenv("TERM"); term == "dumb" || term == "linux" {
		return false
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := os.Getenv(name); value != "" {
			value = strings.ToLower(value)
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return true // nothing said: most terminals are
}

// tuiClient is a client on a small pool whose sessions are bounded, and
// read-only where that was asked for: it is the database that sees to it.
func (a *app) tuiClient(ctx context.Context, readOnly bool) (*jobq.Client, error) {
	url, err := a.url()
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, usageError{err}
	}
	config.MaxConns, config.MinConns = tuiConnections, 2 // two from the start: the first frame has several questions
	parameters := config.ConnConfig.RuntimeParams
	parameters["application_name"] = "jobq-tui"
	parameters["statement_timeout"] = tuiStatementTimeout
	parameters["lock_timeout"] = tuiLockTimeout
	parameters["jit"] = "off" // compiling a query takes longer than any of these does
	if readOnly {
		parameters["default_transaction_read_only"] = "on"
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil && strings.Contains(err.Error(), "unsupported startup parameter") && !readOnly {
		// A pooler: it lets nobody set these. The UI's own deadlines stay.
		pool.Close()
		for _, name := range []string{"statement_timeout", "lock_timeout", "jit"} {
			delete(parameters, name)
		}
		if pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config); err != nil {
			return nil, err
		}
	}
	client, err := jobq.NewClient(pool, &jobq.Config{Schema: a.schema, Actor: userAtHost() + " via jobq-tui"})
	if err == nil {
		err = client.Check(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return client, nil
}

func printFrame(ctx context.Context, cmd *cobra.Command, client *jobq.Client, config *tui.Config, screen, size string) error {
	var cells, lines int
	if _, err := fmt.Sscanf(size, "%dx%d", &cells, &lines); err != nil || cells < 1 || lines < 1 || cells > 1000 || lines > 1000 {
		return usagef("--size %q: columns and lines, such as 120x35", size)
	}
	config.Open = screen
	frame, err := tui.Print(ctx, client, config, cells, lines)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), frame)
	return nil
}
