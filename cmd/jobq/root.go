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
	"github.com/spf13/pflag"

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
		Long: `jobq is a job queue inside PostgreSQL, for every language: SQL adds jobs, workers run them, and none is lost when they die.

Begin with "jobq demo", or "jobq dev" and docs/start.md.`,
		Example: `  jobq migrate up
  jobq enqueue hello '{"name": "world"}'
  jobq worker --run hello=cat`,
		Version:           version(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: a.prepare,
	}
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.StringVar(&a.databaseURL, "database-url", "", "PostgreSQL URL or key=value string")
	flags.StringVar(&a.contextName, "context", "", "a database named in your config file (jobq contexts)")
	flags.StringVar(&a.listenURL, "listen-url", "", "the same database past a pooler, for notifications")
	flags.StringVar(&a.schema, "schema", defaultSchema(), "schema that holds jobq's tables")
	flags.StringVar(&a.sessions, "sessions", envOr("JOBQ_SESSIONS", string(jobq.SessionsAuto)), "own; shared, behind a pooler in transaction mode; or auto")
	add := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, command := range commands {
			command.GroupID = id
			root.AddCommand(command)
		}
	}
	add("jobs", "Jobs", newEnqueueCommand(a), newListCommand(a), newShowCommand(a), newWhyCommand(a), newWaitCommand(a), newLogsCommand(a), newErrorsCommand(a), newRequeueCommand(a), newCancelCommand(a),
		newDeleteCommand(a), newEditCommand(a), newCloneCommand(a), newUndoCommand(a), newEmitCommand(a))
	add("queues", "Queues and schedules", newQueuesCommand(a), newKindsCommand(a), newSchedulesCommand(a))
	add("run", "Run", newWorkerCommand(a), newWorkersCommand(a), newJanitorCommand(a), newJobCommand(a))
	add("operate", "Operate", newTUICommand(a), newStatsCommand(a), newDoctorCommand(a), newAuditCommand(a), newMetricsCommand(a), newMigrateCommand(a), newSettingsCommand(a), newExportCommand(a), newInboxCommand(a),
		newContextsCommand(a), newKeygenCommand(), newVersionCommand(a))
	add("try", "Try it", newDemoCommand(a), newDevCommand(a), newBenchCommand(a), newCrashTestCommand(a))
	root.AddCommand(topics()...)
	useHelp(root)
	root.SetHelpCommand(newHelpCommand())
	return asGroup(root)
}

// prepare is done before any command.
func (a *app) prepare(cmd *cobra.Command, _ []string) error {
	if err := refuseEmpty(cmd); err != nil {
		return err
	}
	if !usesDatabase(cmd) {
		return refuseDatabase(cmd)
	}
	return a.useContext(cmd)
}

// withoutDatabase marks a command that connects to no database that is given.
func withoutDatabase(command *cobra.Command) *cobra.Command {
	command.Annotations = map[string]string{"database": "none"}
	return command
}

// usesDatabase says whether a command has the flags that say which database.
func usesDatabase(cmd *cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		if cmd.Annotations["database"] == "none" {
			return false
		}
	}
	return true
}

// refuseDatabase refuses flags that would have no effect.
func refuseDatabase(cmd *cobra.Command) (err error) {
	cmd.InheritedFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Changed {
			err = usagef("--%s: %q uses no database", flag.Name, cmd.CommandPath())
		}
	})
	return err
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

// asList makes a command what it lists when it is given no command below it.
func asList(command, list *cobra.Command, below ...*cobra.Command) *cobra.Command {
	list.Use, list.Aliases = "list", []string{"ls"}
	command.AddCommand(list)
	command.AddCommand(below...)
	command.Args, command.RunE = exactArgs(0), list.RunE
	command.Flags().AddFlagSet(list.Flags())
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

// otherWords are words of other tools, and what they are called here.
var otherWords = map[string]string{
	"jobq retry": "requeue", "jobq rerun": "requeue", "jobq run": "worker", "jobq start": "worker", "jobq work": "worker", "jobq ps": "workers",
	"jobq add": "enqueue", "jobq push": "enqueue", "jobq insert": "enqueue", "jobq kill": "cancel", "jobq stop": "cancel", "jobq get": "show",
	"jobq copy": "clone", "jobq forward": "inbox", "jobq top": "tui", "jobq ui": "tui", "jobq init": "migrate", "jobq config": "settings",
	"jobq events": "janitor events", "jobq keys": "keygen", "jobq log": "logs", "jobq pause": "queues pause", "jobq resume": "queues resume",
}

func unknownCommand(parent *cobra.Command, name string) error {
	if other := otherWords[parent.CommandPath()+" "+name]; other != "" {
		return usagef("unknown command %q: jobq calls it %s %s", name, parent.CommandPath(), other)
	}
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
