package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/operator"
)

// changeFlags are those that say what a job is made of.
type changeFlags struct {
	args, metadata, queue string
	runAt                 momentFlag
	priority              int16
	maxAttempts           int
	tags                  []string
	set                   setFlag
	keys                  keysFlag
}

func (f *changeFlags) add(command *cobra.Command) {
	flags := command.Flags()
	f.addArgs(flags)
	flags.Int16Var(&f.priority, "priority", 0, "lower runs first")
	flags.Var(&f.runAt, "run-at", runAtUsage)
	flags.StringVarP(&f.queue, "queue", "q", "", "queue")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "attempts before the job fails for good")
	tagsVar(flags, &f.tags, "tag, may be repeated; these replace all tags, and an empty one leaves none")
	flags.StringVar(&f.metadata, "metadata", "", "JSON, @FILE or -; null removes it")
}

// addArgs adds those that are about args alone.
func (f *changeFlags) addArgs(flags *pflag.FlagSet) {
	flags.StringVar(&f.args, "args", "", "what the job works on: JSON, @FILE, or - for standard input")
	flags.Var(&f.set, "set", "set a member of args, such as args.dt=0.01, may be repeated: JSON, else a text; null removes it")
	f.keys.add(flags, keysEncryptUsage)
}

// change is what the flags given say.
func (f *changeFlags) change(cmd *cobra.Command) (change operator.JobChange, err error) {
	given := cmd.Flags().Changed
	if given("args") {
		if change.Args, err = readJSON(cmd, f.args); err != nil {
			return change, fmt.Errorf("--args: %w", err)
		}
	}
	change.ArgsPatch = f.set.patch()
	if change.Args != nil && change.ArgsPatch != nil {
		return change, usagef("give --args or --set, and not both")
	}
	if given("metadata") {
		if change.Metadata, err = readJSON(cmd, f.metadata); err != nil {
			return change, fmt.Errorf("--metadata: %w", err)
		}
	}
	if given("run-at") {
		f.runAt.say(cmd)
		change.RunAt = &f.runAt.at
	}
	if given("priority") {
		change.Priority = &f.priority
	}
	if given("queue") {
		change.Queue = &f.queue
	}
	if given("max-attempts") {
		change.MaxAttempts = &f.maxAttempts
	}
	if given("tag") {
		change.Tags = &f.tags
	}
	return change, nil
}

// argsCodec is what the keys given do to args.
func (f *changeFlags) argsCodec() (argsCodec, error) {
	codec, err := f.keys.codec("")
	return argsCodec{codec}, err
}

func newEditCommand(a *app) *cobra.Command {
	var values changeFlags
	var bulk bulkFlags
	command := &cobra.Command{
		Use:   "edit ID... | --filter FILTER",
		Short: "Change jobs that wait",
		Long: `Change args, queue, priority, start, attempts allowed, tags or metadata of jobs that
wait: available, scheduled and waiting ones. One that runs or has ended is refused; "jobq
clone" makes a new job of it.

Without a flag that says what to change, one job is opened in $VISUAL, $EDITOR or vi
as JSON with comments, and changed as you leave it; run_at can be "tomorrow 09:00" there
too. What cannot be read is opened again with the problem at its top; what was not
stored stays in its file. If somebody else has changed meanwhile what you change,
nothing is done.

A job goes to the tail of its new queue or priority, keeps its place otherwise, and
always keeps its unique key.

Encrypted args can be read and changed with --keys-file or JOBQ_KEYS, of one job at a time.
With keys, new args are encrypted.

` + bulkHelp,
		Example: `  jobq edit 4711                                  # in your editor
  jobq edit 4711 --args @args.json --run-at 'tomorrow 09:00'
  jobq edit --filter 'queue:email kind:Send*' --priority 10 --dry-run
  jobq edit --filter 'tag:sweep1 state:available' --set args.dt=0.01 --yes
  jobq edit --filter 'state:scheduled tag:eu' --max-attempts 3 --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			targets, err := bulk.targetsOf(cmd, args)
			if err != nil {
				return err
			}
			change, err := values.change(cmd)
			if err != nil {
				return err
			}
			codec, err := values.argsCodec()
			if err != nil {
				return err
			}
			if err := codec.check(change, len(targets)); err != nil {
				return err
			}
			if change.IsEmpty() && (len(targets) != 1 || bulk.dryRun) {
				return usagef("say what to change, such as --priority 10; only one job can be opened in an editor, and not with --dry-run")
			}
			return a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
				switch {
				case bulk.filter != "":
					_, err := a.runBulk(cmd, client, operator.BulkParams{Action: jobq.ActionEdit, Filter: jobq.Filter{Match: bulk.filter}, Change: change}, bulk)
					return err
				case bulk.dryRun:
					return a.wouldAct(cmd, client, jobq.ActionEdit, targets)
				case change.IsEmpty():
					return a.editByHand(cmd, client, codec, targets[0].ID)
				case change.Args != nil && len(targets) == 1:
					if change.Args, err = codec.encodeFor(cmd.Context(), client, targets[0].ID, change.Args); err != nil {
						return err
					}
				}
				acted, err := a.operator(client).Edit(cmd.Context(), change, targets...)
				if err != nil {
					return err
				}
				return a.sayActed(cmd, "edit", acted, editedLine)
			})(cmd, args)
		},
	}
	values.add(command)
	bulk.add(command.Flags())
	a.addJSONFlag(command)
	return command
}

// editByHand opens a job in the operator's editor until what is left there can
// be stored, or is left as it was.
func (a *app) editByHand(cmd *cobra.Command, client *jobq.Client, codec argsCodec, id int64) error {
	stored, err := client.Get(cmd.Context(), id)
	if err != nil {
		return err
	}
	job, err := codec.decode(cmd.Context(), stored)
	if err != nil {
		return fmt.Errorf("edit job %d: %w", id, err)
	}
	if job.State != jobq.StateAvailable && job.State != jobq.StateScheduled && job.State != jobq.StateWaiting {
		return fmt.Errorf("edit job %d: %w: job %d is %s", id, jobq.ErrConflict, id, job.State)
	}
	isChosen := os.Getenv("VISUAL") != "" || os.Getenv("EDITOR") != "" // which may need no terminal; vi would wait for ever
	if !isChosen && (!isTerminal(cmd.InOrStdin()) || !isTerminal(cmd.OutOrStdout())) {
		return usagef("edit opens an editor, and there is no terminal for it: say what to change, such as --priority 10")
	}
	file, err := jobedit.Create(id, jobedit.Document(job, jobedit.Heading(job)...))
	if err != nil {
		return err
	}
	var before []byte
	for {
		change, content, err := a.openEditor(cmd, file, job)
		if err == nil && change.IsEmpty() {
			file.Remove()
			fmt.Fprintln(cmd.ErrOrStderr(), "nothing was changed")
			return nil
		}
		var acted *operator.Acted
		if err == nil && change.Args != nil {
			change.Args, err = codec.encode(cmd.Context(), stored, change.Args)
		}
		if err == nil {
			acted, err = a.operator(client).Edit(cmd.Context(), change, operator.Target{ID: id, State: job.State, LeaseToken: job.LeaseToken, Seen: stored})
		}
		switch {
		case err == nil && len(acted.Problems()) == 0:
			file.Remove()
			return a.sayActed(cmd, "edit", acted, editedLine)
		case err == nil:
			return fmt.Errorf("%w; what you wrote is in %s", a.sayActed(cmd, "edit", acted, editedLine), file.Path)
		case !errors.Is(err, jobq.ErrInvalid) || bytes.Equal(content, before):
			return fmt.Errorf("%w; what you wrote is in %s", err, file.Path)
		}
		before = content
		if err := file.Write(jobedit.WithProblem(content, err.Error())); err != nil {
			return err
		}
	}
}

// openEditor lets the operator work on the file, and returns what was changed,
// with the text. What cannot be read is ErrInvalid.
func (a *app) openEditor(cmd *cobra.Command, file *jobedit.File, job *jobq.Job) (change operator.JobChange, content []byte, err error) {
	editor := file.Command(cmd.Context())
	editor.Stdin, editor.Stdout, editor.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := editor.Run(); err != nil {
		return change, nil, fmt.Errorf("editor: %w", err)
	}
	if content, err = file.Read(); err != nil {
		return change, nil, err
	}
	content = jobedit.WithoutProblem(content)
	change, err = jobedit.Changes(content, job)
	if err != nil {
		err = fmt.Errorf("%w: %w", jobq.ErrInvalid, err)
	}
	return change, content, err
}

func newCloneCommand(a *app) *cobra.Command {
	var values changeFlags
	command := &cobra.Command{
		Use:   "clone ID",
		Short: "Copy a job",
		Long: `Add a job with the kind, args, queue, priority, limits, tags and metadata of another
one, in whatever state that is, but for what flags say. It can start at once unless
--run-at says when, and has no unique key. The new job's id is printed. Encrypted args stay
encrypted; new ones are encrypted with --keys-file or JOBQ_KEYS.`,
		Example: `  jobq clone 4711
  jobq clone 4711 --args '{"id": 2}' --queue images --tag again`,
		Args: exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			id, err := parseID("job", args[0])
			if err != nil {
				return err
			}
			change, err := values.change(cmd)
			if err != nil {
				return err
			}
			if change.Args != nil {
				codec, err := values.argsCodec()
				if err != nil {
					return err
				}
				if change.Args, err = codec.encodeFor(cmd.Context(), client, id, change.Args); err != nil {
					return err
				}
			}
			clone, err := a.operator(client).Clone(cmd.Context(), id, change)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), clone)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), clone.ID)
			return err
		}),
	}
	values.add(command)
	a.addJSONFlag(command)
	return command
}
