package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/settings"
	"github.com/jobq-dev/jobq/tui"
)

// Limits on what the terminal UI may cost the database.
const (
	tuiConnections      = 3
	tuiStatementTimeout = "2s"
	tuiLockTimeout      = "500ms"
)

// tuiFlags are the flags of `jobq tui` that are not the UI's own.
type tuiFlags struct {
	print, size, confirm string
	readOnly, plain      bool
	keys                 keysFlag
}

func newTUICommand(a *app) *cobra.Command {
	var config tui.Config
	var f tuiFlags
	command := &cobra.Command{
		Use:   "tui",
		Short: "Watch and act on jobs in a terminal",
		Long: `Watch queues, jobs and workers live, and act on them. ? lists the keys.

What it asks of the database is bounded: it looks again every two seconds,
or every second at the page of a job, and less often when answers are slow. While
it is open, workers notify it of changes. Every action is in "jobq audit", and u
undoes it if it can be undone.

A context with "prod" in its name, with the color red, or with confirm: type
in your settings is painted as production and asks for typed confirmations. A
database on another host asks for them too, unless your settings say ask.
docs/configuration.md says what else the settings can, such as other keys.`,
		Example: `  jobq tui
  jobq tui --context prod --read-only
  jobq tui --open job/4711
  jobq tui --print overview --size 120x35   # one frame, without a terminal`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runTUI(cmd, &config, &f) },
	}
	flags := command.Flags()
	flags.StringVar(&f.confirm, "confirm", "", "ask or type: how much is confirmed by typing, whatever the context says")
	flags.BoolVar(&f.readOnly, "read-only", os.Getenv("JOBQ_READ_ONLY") != "", "change nothing; the database's session enforces it")
	flags.StringVar(&config.Theme, "theme", "", "auto, dark, light or mono (default auto; mono with NO_COLOR or CLICOLOR=0)")
	flags.BoolVar(&config.ASCII, "ascii", false, "draw with ASCII only")
	flags.BoolVar(&f.plain, "plain", false, "tell the screen line by line and take a command a line, for screen readers; help lists them")
	flags.BoolVar(&config.Calm, "reduce-motion", false, "draw at most once a second")
	flags.BoolVar(&config.Poll, "poll-only", false, "do without live events, as behind a pooler")
	flags.StringVar(&config.Open, "open", "", "where to begin: overview, jobs, queues, workers, schedules, errors, audit, job/ID")
	f.keys.add(flags, keysShowUsage+" on a job's own page")
	flags.StringVar(&f.print, "print", "", "write one frame of this screen and leave")
	flags.StringVar(&f.size, "size", "80x24", "with --print: columns and lines")
	return command
}

func (a *app) runTUI(cmd *cobra.Command, config *tui.Config, f *tuiFlags) error {
	switch {
	case !slices.Contains([]string{"", settings.ConfirmAsk, settings.ConfirmType}, f.confirm):
		return usagef("--confirm %q: must be ask or type", f.confirm)
	case f.print == "" && !f.plain && !isTerminal(cmd.OutOrStdout()):
		return usagef(`tui needs a terminal, and standard output is none; "jobq stats --watch" works without one, and so does --print`)
	}
	if !localeIsUTF8() {
		config.ASCII = true
	}
	if config.Theme == "" && colourless() {
		config.Theme = "mono"
	}
	config.Actor = userAtHost() + " via jobq-tui"
	var err error
	if config.Codec, err = f.keys.fromFile(); err != nil {
		return err
	}
	if err := a.offerContexts(cmd, config, f); err != nil {
		return err
	}
	if f.print != "" {
		return printFrame(cmd, config, f.print, f.size)
	}
	if f.plain {
		return tui.RunPlain(cmd.Context(), config, cmd.InOrStdin(), cmd.OutOrStdout())
	}
	return tui.Run(cmd.Context(), config)
}

// offerContexts gives the UI what the operator's settings say: his keys, and
// the databases that he can go to.
func (a *app) offerContexts(cmd *cobra.Command, config *tui.Config, f *tuiFlags) error {
	file, err := loadSettings(cmd)
	if err != nil {
		return err
	}
	config.Keys = make(map[string][]string, len(file.Keys))
	for id, keys := range file.Keys {
		config.Keys[id] = keys
	}
	for _, name := range file.Names() {
		database, host := databaseName(file.Contexts[name].DatabaseURL)
		config.Contexts = append(config.Contexts, f.context(name, file.Contexts[name], database, host))
	}
	if _, err := a.poolConfig(); err != nil {
		return err
	}
	config.Context = f.context(a.contextName, a.context, "", "")
	config.Context.Flags = a.flags()
	config.Connect = func(ctx context.Context, name string) (*jobq.Client, tui.Context, error) {
		if name == a.contextName { // as the flags say
			return a.tuiConnect(ctx, f)
		}
		there := &app{schema: defaultSchema(), sessions: a.sessions}
		there.enter(name, file.Contexts[name], false)
		return there.tuiConnect(ctx, f)
	}
	return nil
}

// context is a context as the UI treats it. What the flags say wins: about what
// is typed, not about what is production.
func (f *tuiFlags) context(name string, context settings.Context, database, host string) tui.Context {
	typed := settings.Typed(name, context, host)
	if f.confirm != "" {
		typed = f.confirm == settings.ConfirmType
	}
	return tui.Context{
		Name: name, Database: database, Color: context.Color, ReadOnly: context.ReadOnly || f.readOnly,
		Production: settings.Production(name, context), Confirm: typed,
	}
}

// colourless says whether the environment asks for no colours.
func colourless() bool {
	return os.Getenv("NO_COLOR") != "" || os.Getenv("CLICOLOR") == "0" || os.Getenv("TERM") == "dumb"
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

// tuiConnect makes a client on a small pool whose sessions are bounded, and
// read-only where that was asked for: it is the database that sees to it.
func (a *app) tuiConnect(ctx context.Context, f *tuiFlags) (*jobq.Client, tui.Context, error) {
	config, err := a.poolConfig()
	if err != nil {
		return nil, tui.Context{}, err
	}
	config.MaxConns, config.MinConns = tuiConnections, 2 // two from the start: the first frame has several questions
	parameters := config.ConnConfig.RuntimeParams
	parameters["application_name"] = "jobq-tui"
	parameters["statement_timeout"] = tuiStatementTimeout
	parameters["lock_timeout"] = tuiLockTimeout
	parameters["jit"] = "off" // compiling a query takes longer than any of these does
	where := f.context(a.contextName, a.context, config.ConnConfig.Database, config.ConnConfig.Host)
	where.Flags = a.flags()
	if where.ReadOnly {
		parameters["default_transaction_read_only"] = "on"
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, where, err
	}
	if err := pool.Ping(ctx); err != nil && strings.Contains(err.Error(), "unsupported startup parameter") && !where.ReadOnly {
		// A pooler: it lets nobody set these. The UI's own deadlines stay.
		pool.Close()
		for _, name := range []string{"statement_timeout", "lock_timeout", "jit"} {
			delete(parameters, name)
		}
		if pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config); err != nil {
			return nil, where, err
		}
	}
	client, err := a.clientOfTUI(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, where, err
	}
	return client, where, nil
}

// clientOfTUI is a client whose database answers and has the right tables.
func (a *app) clientOfTUI(ctx context.Context, pool *pgxpool.Pool) (*jobq.Client, error) {
	config, err := a.notifiedConfig()
	if err != nil {
		return nil, err
	}
	config.Schema = a.schema
	client, err := jobq.NewClient(pool, config)
	if err != nil {
		return nil, err
	}
	return client, client.Check(ctx)
}

func printFrame(cmd *cobra.Command, config *tui.Config, screen, size string) error {
	var cells, lines int
	if _, err := fmt.Sscanf(size, "%dx%d", &cells, &lines); err != nil || cells < 1 || lines < 1 || cells > 1000 || lines > 1000 {
		return usagef("--size %q: columns and lines, such as 120x35", size)
	}
	config.Open = screen
	ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
	defer cancel()
	frame, err := tui.Print(ctx, config, cells, lines)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), frame)
	return nil
}
