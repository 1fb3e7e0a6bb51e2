package main

import (
	"cmp"
	"context"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/settings"
	"github.com/jobq-dev/jobq/operator"
)

// connectTimeout bounds the first connection of commands that do one thing.
const connectTimeout = 10 * time.Second

// app is what all commands share: the global flags.
type app struct {
	databaseURL string
	listenURL   string // of the same database, past a pooler
	schema      string
	sessions    string
	contextName string
	context     settings.Context // of that name; zero when there is none
	inContext   bool             // the database is the context's
	json        bool
	isProcess   bool       // the command is all that this process does
	codec       jobq.Codec // of the command's client; nil for none
}

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "jobq",
		Short: "A job queue inside PostgreSQL",
		Long: `jobq is a job queue inside PostgreSQL, with leases, fencing and recovery.

The database is the first of these that is given: --database-url, --context,
JOBQ_DATABASE_URL, DATABASE_URL, JOBQ_CONTEXT, and libpq's variables such as PGHOST.
If that leads through a pooler in transaction mode, --listen-url or JOBQ_LISTEN_URL can give a
direct connection to the server, for notifications alone.
JOBQ_ACTOR is who acts, as the audit names them; without it, your login and the host.
"jobq contexts" lists the names for --context. Without a database, try "jobq dev" or
"jobq demo".

Exit codes: 0 ok, 1 error, 2 usage or invalid value, 3 no such job, queue, kind,
schedule, worker or action, 4 conflict, such as a job that runs or a unique key that is taken.
"jobq doctor" has 5 and 6 besides; "jobq wait" and "jobq enqueue --wait" have 7 for a job that
has failed, 8 for one that was cancelled, and 9 when the time is over.`,
		Example: `  jobq migrate up
  jobq enqueue hello '{"name": "world"}'
  jobq worker --run hello='cat'
  jobq show 1`,
		Version:           version(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: a.prepare,
	}
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.StringVar(&a.databaseURL, "database-url", "", "PostgreSQL URL or key=value string (default: the environment, see help)")
	flags.StringVar(&a.contextName, "context", "", "a database named in your settings (jobq contexts); beside --database-url, only its name, color, confirmations and read_only")
	flags.StringVar(&a.listenURL, "listen-url", "", "the same database past a pooler, for notifications: worker, tui, wait and enqueue --wait listen there, and the janitor leads there (default: JOBQ_LISTEN_URL, or the context's)")
	flags.StringVar(&a.schema, "schema", defaultSchema(), "schema that holds jobq's tables")
	flags.StringVar(&a.sessions, "sessions", envOr("JOBQ_SESSIONS", string(jobq.SessionsAuto)), "own; shared, behind a pooler in transaction mode; auto finds out")
	root.AddGroup(
		&cobra.Group{ID: "jobs", Title: "Jobs:"},
		&cobra.Group{ID: "run", Title: "Running them:"},
		&cobra.Group{ID: "setup", Title: "Setting up:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, command := range commands {
			command.GroupID = group
			root.AddCommand(command)
		}
	}
	add("jobs", newEnqueueCommand(a), newEmitCommand(a), newListCommand(a), newShowCommand(a), newWhyCommand(a), newWaitCommand(a), newLogsCommand(a), newErrorsCommand(a), newRequeueCommand(a), newCancelCommand(a),
		newDeleteCommand(a), newEditCommand(a), newCloneCommand(a), newUndoCommand(a), newAuditCommand(a), newStatsCommand(a))
	add("run", newTUICommand(a), newWorkerCommand(a), newJanitorCommand(a), newQueuesCommand(a), newKindsCommand(a), newSchedulesCommand(a), newWorkersCommand(a), newEventsCommand(a), newMetricsCommand(a),
		newJobCommand(a))
	add("setup", newMigrateCommand(a), newInboxCommand(a), newSettingsCommand(a), newExportCommand(a), newDoctorCommand(a), newDevCommand(a), newDemoCommand(a), newBenchCommand(a), newCrashTestCommand(a), newContextsCommand(a), newKeysCommand(), newVersionCommand(a))
	root.SetHelpCommand(newHelpCommand())
	return asGroup(root)
}

// prepare is done before any command.
func (a *app) prepare(cmd *cobra.Command, _ []string) error {
	if err := refuseEmpty(cmd); err != nil {
		return err
	}
	return a.useContext(cmd)
}

// addJSONFlag is for commands that read.
func (a *app) addJSONFlag(command *cobra.Command) {
	command.Flags().BoolVar(&a.json, "json", false, "write JSON")
}

// url is the database to use. Nothing at all is an error: libpq's default of a
// local server would be a surprise.
func (a *app) url() (string, error) {
	if a.databaseURL != "" {
		return a.databaseURL, nil
	}
	if url := environmentURL(); url != "" {
		return url, nil
	}
	for _, name := range []string{"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGUSER"} {
		if os.Getenv(name) != "" {
			return "", nil
		}
	}
	return "", usagef(`no database given: use --database-url or --context, or set DATABASE_URL, or try "jobq dev"`)
}

// pool returns a pool that has not connected yet.
func (a *app) pool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := a.poolConfig()
	if err != nil {
		return nil, err
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// poolConfig says how to connect, for commands that make pools themselves.
func (a *app) poolConfig() (*pgxpool.Config, error) {
	url, err := a.url()
	if err != nil {
		return nil, err
	}
	return a.parse(url)
}

// listenAddress is the URL for notifications; empty for that of the database. The one of
// the environment is not about the database of a context.
func (a *app) listenAddress() string {
	if a.listenURL != "" || a.inContext {
		return a.listenURL
	}
	return os.Getenv("JOBQ_LISTEN_URL")
}

// listenConfig says how to connect for notifications; nil for as the pool does.
func (a *app) listenConfig() (*pgxpool.Config, error) {
	url := a.listenAddress()
	if url == "" {
		return nil, nil
	}
	config, err := a.parse(url)
	if err != nil {
		return nil, usagef("listen URL: %v", err)
	}
	return config, nil
}

func (a *app) parse(url string) (*pgxpool.Config, error) {
	config, err := db.ParseURL(url)
	if err != nil {
		return nil, usageError{err}
	}
	if _, ok := config.ConnConfig.RuntimeParams["application_name"]; !ok {
		config.ConnConfig.RuntimeParams["application_name"] = "jobq"
	}
	if a.context.ReadOnly {
		config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	}
	db.PinPool(config)
	return config, nil
}

// client returns a client whose database answers and has the right tables.
// Close its pool.
func (a *app) client(ctx context.Context) (*jobq.Client, error) {
	sessions := jobq.Sessions(a.sessions)
	if sessions == jobq.SessionsAuto {
		sessions = jobq.SessionsShared // for a few statements it costs nothing to be safe, and the search would
	}
	return a.checkedClient(ctx, &jobq.Config{Sessions: sessions})
}

// notifiedClient is client for commands that wait for notifications, which do not
// arrive behind a pooler: so they look for one, or listen on the direct connection.
func (a *app) notifiedClient(ctx context.Context) (*jobq.Client, error) {
	config, err := a.notifiedConfig()
	if err != nil {
		return nil, err
	}
	return a.checkedClient(ctx, config)
}

// notifiedConfig is that of a client that waits for notifications.
func (a *app) notifiedConfig() (*jobq.Config, error) {
	listen, err := a.listenConfig()
	return &jobq.Config{Sessions: jobq.Sessions(a.sessions), Listen: listen}, err
}

func (a *app) checkedClient(ctx context.Context, config *jobq.Config) (*jobq.Client, error) {
	client, err := a.clientOn(ctx, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := client.Check(ctx); err != nil {
		client.Pool().Close()
		return nil, err
	}
	return client, nil
}

// uncheckedClient is for daemons, which wait for the database themselves.
func (a *app) uncheckedClient(ctx context.Context) (*jobq.Client, error) {
	config, err := a.notifiedConfig()
	if err != nil {
		return nil, err
	}
	return a.clientOn(ctx, config)
}

// clientOn completes the config.
func (a *app) clientOn(ctx context.Context, config *jobq.Config) (*jobq.Client, error) {
	pool, err := a.pool(ctx)
	if err != nil {
		return nil, err
	}
	config.Schema, config.Codec = a.schema, a.codec
	client, err := jobq.NewClient(pool, config)
	if err != nil {
		pool.Close()
		return nil, usageError{err}
	}
	return client, nil
}

// operator acts in the name of who runs the command.
func (a *app) operator(client *jobq.Client) *operator.Operator {
	return operator.New(client, userAtHost()+" via jobq")
}

// withClient runs a command's work with a client.
func (a *app) withClient(work func(cmd *cobra.Command, args []string, client *jobq.Client) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := a.client(cmd.Context())
		if err != nil {
			return err
		}
		defer client.Pool().Close()
		return work(cmd, args, client)
	}
}

// asGroup makes a command one that is only there for those below it: it shows
// its help, and refuses the name of none of them, which cobra would not.
func asGroup(command *cobra.Command, below ...*cobra.Command) *cobra.Command {
	command.AddCommand(below...)
	command.Args = exactArgs(0)
	command.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return command
}

// exactArgs wants so many arguments.
func exactArgs(count int) cobra.PositionalArgs { return rangeArgs(count, count) }

// rangeArgs wants so many arguments. Those of a command that has others below
// it, and takes none itself, are taken for the name of one.
func rangeArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > most && most == 0 && cmd.HasAvailableSubCommands():
			return unknownCommand(cmd, args[0])
		case len(args) > most:
			return usagef("%q is one argument too many; usage: %s", args[most], cmd.UseLine())
		case len(args) < least:
			return usagef("an argument is missing; usage: %s", cmd.UseLine())
		}
		return nil
	}
}

func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, below := range parent.Commands() {
		if below.IsAvailableCommand() {
			names = append(names, below.Name())
		}
	}
	return usagef("unknown command %q: see %s --help%s", name, parent.CommandPath(), didYouMean(name, names))
}

// newHelpCommand is cobra's, but for names that are none of a command.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND...]", Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			command, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = unknownCommand(command, rest[0])
			}
			if err != nil {
				return err
			}
			command.InitDefaultHelpFlag()
			return command.Help()
		},
	}
}

// parseID reads the id of what is named: a job or an action.
func parseID(what, text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, usagef("%s id %q: must be a positive number", what, text)
	}
	return id, nil
}

func defaultSchema() string { return envOr("JOBQ_SCHEMA", "jobq") }

func envOr(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// userAtHost names the operator in what others will read: as JOBQ_ACTOR says, or else the user and the host.
func userAtHost() string {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "unknown host"
	}
	return envOr("JOBQ_ACTOR", userName()+"@"+hostname)
}

// userName is the login of who runs the command. In a container no variable says it.
func userName() string {
	return cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME"), nameOf(strconv.Itoa(os.Getuid())))
}

// nameOf is the name of the account of that number, or says that there is none.
func nameOf(uid string) string {
	if account, err := user.LookupId(uid); err == nil && account.Username != "" {
		return account.Username
	}
	return "uid " + uid
}
