package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
)

// helpWidth is that of a terminal that nobody has made wider.
const helpWidth = 80

// wrap breaks lines at blanks. Lines that begin with a blank, such as those of a table, stay as they are; those of a
// paragraph flow together first.
func wrap(text string, width int) string {
	var lines []string
	paragraph := ""
	end := func() {
		if paragraph != "" {
			lines = append(lines, wrapWords(strings.Fields(paragraph), width)...)
			paragraph = ""
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case line == "" || line[0] == ' ':
			end()
			lines = append(lines, line)
		case paragraph == "":
			paragraph = line
		default:
			paragraph += " " + line
		}
	}
	end()
	return strings.Join(lines, "\n")
}

// wrapWords fills lines with words. Hyphens, such as those of flags, are no place to break.
func wrapWords(words []string, width int) (lines []string) {
	line := ""
	for _, word := range words {
		switch {
		case line == "":
			line = word
		case ansi.StringWidth(line)+1+ansi.StringWidth(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

// useHelp has the command and those below it show help that fits into a terminal.
func useHelp(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(cmd.OutOrStdout(), cmd) })
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		writeUsage(cmd.OutOrStderr(), cmd)
		return nil
	})
}

// writeHelp writes what a command does, and how it is called.
func writeHelp(out io.Writer, cmd *cobra.Command) {
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintln(out, wrap(text, helpWidth))
	if isTopic(cmd) {
		return
	}
	fmt.Fprintln(out)
	writeUsage(out, cmd)
}

func writeUsage(out io.Writer, cmd *cobra.Command) {
	if cmd.Runnable() && cmd.HasParent() {
		line := "Usage: " + cmd.UseLine()
		if len(line) > helpWidth {
			line = strings.TrimSuffix(line, " [flags]")
		}
		fmt.Fprintln(out, line)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "Usage: %s COMMAND\n", cmd.CommandPath())
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(out, "\nAlso called: %s\n", strings.Join(cmd.Aliases, ", "))
	}
	if cmd.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n%s\n", cmd.Example)
	}
	writeCommands(out, cmd)
	if flags := strings.TrimRight(cmd.LocalFlags().FlagUsagesWrapped(helpWidth), "\n"); flags != "" && cmd.HasParent() {
		fmt.Fprintf(out, "\nFlags:\n%s\n", flags)
	}
	switch {
	case !cmd.HasParent():
		fmt.Fprintln(out, "\nMore: jobq COMMAND --help, jobq help "+strings.Join(topicNames(cmd), ", ")+".")
	case usesDatabase(cmd):
		fmt.Fprintln(out, "\nWhich database: \"jobq help database\".")
	}
}

// writeCommands lists the commands below one, in their groups.
func writeCommands(out io.Writer, cmd *cobra.Command) {
	list := func(title, group string) {
		begun := false
		for _, below := range cmd.Commands() {
			if below.GroupID != group || !below.IsAvailableCommand() || below.Name() == "help" || below.Name() == "completion" {
				continue
			}
			if !begun {
				fmt.Fprintf(out, "\n%s:\n", title)
				begun = true
			}
			fmt.Fprintf(out, "  %-*s %s\n", cmd.NamePadding(), below.Name(), below.Short)
		}
	}
	for _, group := range cmd.Groups() {
		list(group.Title, group.ID)
	}
	list("Commands", "")
}

// isTopic says whether a command is a page of help alone.
func isTopic(cmd *cobra.Command) bool { return !cmd.Runnable() && !cmd.HasSubCommands() }

func topicNames(root *cobra.Command) (names []string) {
	for _, below := range root.Commands() {
		if isTopic(below) {
			names = append(names, below.Name())
		}
	}
	return names
}

// topics are pages of help that are about more than one command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: "database", Short: "Which database a command uses, and how it connects",
			Long: `The database is the first of these that is given:

  --database-url     a PostgreSQL URL, or key=value pairs
  --context          a database that you have named: "jobq contexts" lists them
  JOBQ_DATABASE_URL, DATABASE_URL
  JOBQ_CONTEXT
  PGHOST, PGSERVICE and libpq's other variables

Beside --database-url, a context gives only its name, color, confirmations and read_only. Without a database, try "jobq dev" or "jobq demo".

  --schema           the schema that holds jobq's tables; default JOBQ_SCHEMA
                     or jobq
  --listen-url       the same database past a pooler, for notifications; default
                     JOBQ_LISTEN_URL, or the context's
  --sessions         own; shared, behind a pooler in transaction mode; auto
                     finds out. Default JOBQ_SESSIONS or auto

Notifications do not pass a pooler in transaction mode. Without --listen-url, worker, tui, wait and enqueue --wait look for news by themselves, and the janitor leads for one pass at a time.`,
		},
		{
			Use: "environment", Short: "Variables that jobq reads",
			Long: `Variables that jobq reads; flags win over them:

  JOBQ_DATABASE_URL, DATABASE_URL, JOBQ_CONTEXT, PGHOST and so on
                     which database: "jobq help database"
  JOBQ_LISTEN_URL    the same database past a pooler, for notifications
  JOBQ_SCHEMA        the schema that holds jobq's tables
  JOBQ_SESSIONS      own, shared or auto
  JOBQ_ACTOR         who acts, as the audit names them; default your login and
                     the host
  JOBQ_KEYS          keys that encrypt args: "jobq keygen" makes one
  NO_COLOR           no colors in the terminal UI
  EDITOR, VISUAL     what "jobq edit" and the terminal UI open
  XDG_CONFIG_HOME    where your config file is: "jobq contexts" shows it

A worker gives its programs variables of their own: docs/program-contract.md.`,
		},
		{
			Use: "exit-codes", Short: "What the exit codes mean",
			Long: `Exit codes, the same for every command:

  0  it worked
  1  an error
  2  a mistake in the command line, or an invalid value
  3  there is no such job, queue, kind, schedule, worker or action
  4  a conflict, such as a job that runs or a unique key that is taken
  5  doctor has found something to be warned of
  6  doctor has found something critical
  7  wait, enqueue --wait: the job has failed
  8  wait, enqueue --wait: the job was cancelled
  9  wait, enqueue --wait: the time is over

Commands that run another command, such as dev --ephemeral, pass its code on.`,
		},
		{
			Use: "filter", Short: "How to select jobs",
			Long: `A filter is made of terms that must all hold:

  state:failed queue:email kind:Send* err:"smtp 421" age:<2h args.tenant=4411

Commas separate alternatives (queue:email,sms), * stands for any text, - or ! in front of a term means "not", and quotes keep blanks. A bare number is a job id, another bare word is looked for in kind, queue and last error. Ages are 90s, 2h, 30d, 1w. docs/filter.md lists the terms.

"jobq list" takes the terms as arguments; the commands that change jobs take them as one value, in quotes: jobq requeue --filter 'state:failed queue:email'.`,
		},
	}
}
