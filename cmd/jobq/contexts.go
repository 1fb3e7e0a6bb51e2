package main

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/settings"
)

// useContext finds out which context is meant, once the flags are known, and
// takes the database from it. Only then is the operator's file read: a mistake
// in it harms nobody who does not use it.
func (a *app) useContext(cmd *cobra.Command) error {
	name := a.contextName
	if name == "" && a.databaseURL == "" && environmentURL() == "" {
		name = os.Getenv("JOBQ_CONTEXT")
	}
	if name == "" {
		return nil
	}
	file, err := loadSettings(cmd)
	if err != nil {
		return err
	}
	context, err := file.Context(name)
	if err != nil && a.databaseURL == "" {
		return usageError{err}
	}
	a.enter(name, context, cmd.Flags().Changed("schema"))
	return nil
}

// loadSettings reads the operator's file.
func loadSettings(cmd *cobra.Command) (*settings.File, error) {
	file, err := settings.Load(settings.Path())
	if err != nil {
		return nil, usageError{err}
	}
	if file.WritableByAll {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: every user of this machine can change %s, and so where you connect: chmod o-w it\n", settings.Path())
	}
	return file, nil
}

// enter makes the context the one that is worked in. What the flags say wins.
func (a *app) enter(name string, context settings.Context, schemaGiven bool) {
	a.contextName, a.context = name, context
	if a.databaseURL == "" {
		a.databaseURL, a.inContext = context.DatabaseURL, true
		a.listenURL = cmp.Or(a.listenURL, context.ListenURL)
	}
	if context.Schema != "" && !schemaGiven {
		a.schema = context.Schema
	}
}

// flags lead another command, in the same shell, to the same database and
// schema. A URL that was given as a flag is not repeated: it can hold a
// password, and a command line is pasted into tickets. URL stands for it, which
// is refused until one is in its place. A context's name does not stand for it:
// with a URL it is a label, and alone it may lead to another database.
func (a *app) flags() (flags []string) {
	if a.databaseURL != "" && a.databaseURL != a.context.DatabaseURL {
		flags = append(flags, "--database-url", "URL")
	}
	if a.contextName != "" {
		flags = append(flags, "--context", a.contextName)
	}
	if a.schema != cmp.Or(a.context.Schema, defaultSchema()) {
		flags = append(flags, "--schema", a.schema)
	}
	return flags
}

// environmentURL is the database that the environment names.
func environmentURL() string { return envOr("JOBQ_DATABASE_URL", os.Getenv("DATABASE_URL")) }

// contextInfo is a context without its secrets.
type contextInfo struct {
	Name       string `json:"name"`
	Database   string `json:"database"`
	Schema     string `json:"schema"`
	Color      string `json:"color,omitempty"`
	Confirm    string `json:"confirm"`
	Production bool   `json:"production"`
	ReadOnly   bool   `json:"read_only"`
	Current    bool   `json:"current"`
}

func newContextsCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "contexts",
		Short: "List the databases that you have named",
		Long: `List the databases that your settings name: ` + "`contexts`" + ` in jobq/config.yaml below
$XDG_CONFIG_HOME, else ~/.config. docs/configuration.md says what it can say. Every command
takes --context NAME, and the terminal UI goes from one to another with @.

Passwords are not shown.`,
		Example: "  jobq contexts\n  jobq list --context staging state:failed",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadSettings(cmd)
			if err != nil {
				return err
			}
			infos := make([]contextInfo, 0, len(file.Contexts))
			for _, name := range file.Names() {
				infos = append(infos, a.describeContext(name, file.Contexts[name]))
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), infos)
			}
			t := newTable(cmd.OutOrStdout(), "NAME", "DATABASE", "SCHEMA", "COLOR", "CONFIRM", "ACCESS")
			for _, info := range infos {
				access := "RW"
				if info.ReadOnly {
					access = "RO"
				}
				name := info.Name
				if info.Current {
					name += " *"
				}
				t.row(name, info.Database, info.Schema, info.Color, info.Confirm, access)
			}
			return t.flush()
		},
	}
	a.addJSONFlag(command)
	return command
}

func (a *app) describeContext(name string, context settings.Context) contextInfo {
	database, host := databaseName(context.DatabaseURL)
	info := contextInfo{
		Name: name, Database: database, Schema: context.Schema, Color: context.Color, Confirm: settings.ConfirmAsk,
		Production: settings.Production(name, context), ReadOnly: context.ReadOnly, Current: name == a.contextName,
	}
	if info.Schema == "" {
		info.Schema = defaultSchema()
	}
	if settings.Typed(name, context, host) {
		info.Confirm = settings.ConfirmType
	}
	return info
}

// databaseName is user@host:port/database, without anything secret, and the host.
func databaseName(url string) (name, host string) {
	config, err := db.ParseURL(url)
	if err != nil {
		return "not a database URL", ""
	}
	c := config.ConnConfig
	if strings.HasPrefix(c.Host, "/") {
		return fmt.Sprintf("%s@%s/%s", c.User, c.Host, c.Database), c.Host
	}
	return fmt.Sprintf("%s@%s/%s", c.User, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), c.Database), c.Host
}
