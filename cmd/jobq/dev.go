package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq/internal/postgres"
	"github.com/jobq-dev/jobq/migrate"
)

// devDatabase is the database that dev servers have ready.
const devDatabase = "postgres"

// stopTimeout bounds the stop of a private server.
const stopTimeout = 30 * time.Second

func newDevCommand(a *app) *cobra.Command {
	var ephemeral bool
	var dir string
	command := &cobra.Command{
		Use:   "dev [--ephemeral -- COMMAND ARGS...]",
		Short: "Start a private PostgreSQL for trying jobq out",
		Long: `Start a private PostgreSQL with jobq's tables in it, print its URL, and stop it when
interrupted. Its data stay for the next time. Where one runs already in the same folder, it
joins that one, and says so; with --dir, each project has its own. The programs are those found on this
machine (JOBQ_PG_BIN, PATH, the usual folders), or else downloaded. As root, the
server runs as another user.

With --ephemeral, a fresh server is started, COMMAND runs with DATABASE_URL and
JOBQ_DATABASE_URL set, so that jobq in it can reach no other database by accident, and
the server is removed. The exit code is the command's.`,
		Example: `  jobq dev
  jobq dev --ephemeral -- go test ./...
  jobq dev --ephemeral -- sh -c 'psql "$DATABASE_URL" -c "select 1"'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case ephemeral && len(args) == 0:
				return usagef("--ephemeral needs a command after --")
			case ephemeral:
				return a.devRun(cmd, args)
			case len(args) > 0:
				return usagef("a command needs --ephemeral before it")
			}
			return a.devServe(cmd, dir)
		},
	}
	command.Flags().BoolVar(&ephemeral, "ephemeral", false, "start a fresh server for one command")
	command.Flags().StringVar(&dir, "dir", "", "folder for the data (default below XDG_STATE_HOME)")
	return command
}

// devServe runs the lasting server until it is interrupted.
func (a *app) devServe(cmd *cobra.Command, dir string) error {
	if dir == "" {
		var err error
		if dir, err = stateDir(); err != nil {
			return err
		}
	}
	server, err := postgres.Start(cmd.Context(), postgres.Config{DataDir: dir, Durable: true, TCP: true, Logger: warnings(cmd)})
	if err != nil {
		return err
	}
	defer stopPostgres(server)
	if owner := server.Owner(); owner != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "joined the PostgreSQL that %s runs in %s, with its jobs and workers: --dir FOLDER starts another one\n", owner, dir)
	}
	if err := a.migrateUp(cmd.Context(), server.URL(devDatabase)); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n", server.URL(devDatabase))
	until := "until Ctrl-C"
	if owner := server.Owner(); owner != nil {
		until = "as long as " + owner.String() + " does"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "PostgreSQL runs with jobq's tables in %s, %s. In another terminal:\n%s", dir, until, exports(server.URL(devDatabase)))
	if err := server.Wait(cmd.Context()); cmd.Context().Err() != nil {
		return nil // told to stop
	} else if err != nil {
		return err
	}
	return errors.New("the server has ended")
}

// exports are the lines that lead a shell to the database. What would win over
// DATABASE_URL there, as it is set here, is changed with it.
func exports(url string) string {
	lines := fmt.Sprintf("  export DATABASE_URL='%s'\n", url)
	if os.Getenv("JOBQ_DATABASE_URL") != "" {
		lines += "  export JOBQ_DATABASE_URL=\"$DATABASE_URL\"\n"
	}
	if os.Getenv("JOBQ_LISTEN_URL") != "" {
		lines += "  unset JOBQ_LISTEN_URL\n"
	}
	return lines
}

// devRun runs a command on a server of its own.
func (a *app) devRun(cmd *cobra.Command, args []string) error {
	server, err := postgres.Start(cmd.Context(), postgres.Config{Logger: warnings(cmd)})
	if err != nil {
		return err
	}
	defer stopPostgres(server)
	url := server.URL(devDatabase)
	if err := a.migrateUp(cmd.Context(), url); err != nil {
		return err
	}
	command := exec.CommandContext(cmd.Context(), args[0], args[1:]...) // #nosec G204 -- the caller's own command
	// All that could lead jobq in the command to the caller's own tables.
	command.Env = append(os.Environ(), "DATABASE_URL="+url, "JOBQ_DATABASE_URL="+url, "JOBQ_LISTEN_URL=", "JOBQ_SCHEMA="+a.schema)
	command.Stdin, command.Stdout, command.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	// A terminal's Ctrl-C reaches the command by itself; give it time to end.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	defer signal.Stop(interrupted)
	command.Cancel = func() error {
		select {
		case <-interrupted:
			if isForeground() {
				return nil
			}
		case <-time.After(50 * time.Millisecond): // it was SIGTERM
		}
		return command.Process.Signal(os.Interrupt)
	}
	command.WaitDelay = stopTimeout
	err = command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 0 {
		if exit.ExitCode() == 0 {
			return nil
		}
		return errors.Join(errSilent, exitStatus(exit.ExitCode()))
	}
	return err
}

// isForeground says whether this process is one of those that its terminal sends a Ctrl-C.
func isForeground() bool {
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false // it has none
	}
	defer func() { _ = terminal.Close() }() // nothing was written
	var group int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, terminal.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group))) // #nosec G103 -- the call's convention
	return errno == 0 && int(group) == syscall.Getpgrp()
}

func (a *app) migrateUp(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = migrate.Up(ctx, pool, &migrate.Config{Schema: a.schema, Logger: slog.New(slog.DiscardHandler)})
	return err
}

// warnings is a log of what takes long or goes wrong with a private server.
func warnings(cmd *cobra.Command) *slog.Logger {
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func stopPostgres(server *postgres.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "jobq: stop PostgreSQL: %v\n", err)
	}
}

// stateDir is where the lasting server's data are. Root's home is closed to
// the user that the server runs as, so root has another place.
func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "jobq", "postgres"), nil
	}
	if os.Getuid() == 0 {
		return "/var/lib/jobq/postgres", nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state", "jobq", "postgres"), nil
}
