package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// exportedDay is a day that was exported, in `jobq export --dir --json`.
type exportedDay struct {
	Day      string `json:"day"`
	File     string `json:"file"`
	Jobs     int64  `json:"jobs"`
	Attempts int64  `json:"attempts"`
	AuditID  int64  `json:"audit_id"`
}

// exported is what `jobq export --dir --json` writes.
type exported struct {
	Days  []exportedDay `json:"days"`
	Next  string        `json:"next"`            // the day that comes next
	Waits string        `json:"waits,omitempty"` // why it could not be exported yet
}

func newExportCommand(a *app) *cobra.Command {
	var dir, day, before string
	command := &cobra.Command{
		Use:   "export --dir DIR",
		Short: "Write the history to files, a day at a time, before it is dropped",
		Long: `Write the history to files, a file for each day (UTC): the jobs that were claimed on the
day, and the recorded runs that ended on it, as lines of JSON. Days of which no job runs
any more are written, in their order, up to yesterday. With "jobq settings set
keep_until_exported true" no day is dropped before that, however old it is.

A file is DIR/2026-11-02.ndjson. It is there when it is whole and on the disk, and no file
is ever overwritten. An export that was cut off leaves DIR/2026-11-02.ndjson.part, with
which the next one goes on. A job may be in two files: when an undo has brought it back
after its export, all days from its day on are exported again.

The first line is {"begin": …}, then come {"job": …} and {"attempt": …}, and the last line
is {"end": …} with how many there are. docs/configuration.md says more.

With --day, one day is written to standard output, whatever runs, and nothing is recorded.`,
		Example: `  jobq export --dir /srv/archive/jobq
  jobq export --dir /srv/archive/jobq --before 2026-11-20
  jobq export --day 2026-11-02 | jq -c 'select(.job.state == "failed").job'`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (dir == "") == (day == "") {
				return usagef("give either --dir, for files, or --day, for standard output")
			}
			days := make(map[string]time.Time)
			for flag, text := range map[string]string{"day": day, "before": before} {
				if text == "" {
					continue
				}
				parsed, err := time.Parse(time.DateOnly, text)
				if err != nil {
					return usagef("--%s %q: must be a day, such as 2026-11-02", flag, text)
				}
				days[flag] = parsed
			}
			switch {
			case day != "" && (before != "" || a.json):
				return usagef("--before and --json are for --dir")
			case day != "":
				return a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
					return exportToStdout(cmd.Context(), client, days["day"], cmd.OutOrStdout())
				})(cmd, args)
			}
			return a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
				return a.exportToFiles(cmd, client, dir, days["before"])
			})(cmd, args)
		},
	}
	flags := command.Flags()
	flags.StringVar(&dir, "dir", "", "folder for the files, which must be there")
	flags.StringVar(&before, "before", "", "with --dir, stop before this day (default the day that is not over)")
	flags.StringVar(&day, "day", "", "write this day to standard output, and record nothing")
	a.addJSONFlag(command)
	return command
}

// exportToStdout writes one day.
func exportToStdout(ctx context.Context, client *jobq.Client, day time.Time, out io.Writer) error {
	buffered := bufio.NewWriter(out)
	e := dayExport{day: day, recorded: new(false)}
	err := e.begin(buffered, client.Schema(), time.Now().UTC())
	if err == nil {
		err = e.write(ctx, client, buffered)
	}
	return errors.Join(err, buffered.Flush())
}

// exportToFiles writes all days that can be exported.
func (a *app) exportToFiles(cmd *cobra.Command, client *jobq.Client, dir string, before time.Time) error {
	ctx, done := cmd.Context(), exported{Days: []exportedDay{}}
	for {
		state, err := monitor.New(client).Export(ctx)
		if err != nil {
			return err
		}
		done.Next = state.Next.Format(time.DateOnly)
		if !state.Next.Before(state.Open) || !before.IsZero() && !state.Next.Before(before) {
			break
		}
		one, err := a.exportToFile(ctx, client, dir, state)
		if errors.Is(err, errNotYet) {
			done.Waits = err.Error()
			break
		}
		if err != nil {
			return err
		}
		done.Days = append(done.Days, one)
		if !a.json {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s and %s in %s\n", one.Day, format.Count(one.Jobs, "job"), format.Count(one.Attempts, "attempt"), printable.Line(one.File))
		}
	}
	if a.json {
		return writeJSON(cmd.OutOrStdout(), done)
	}
	switch {
	case done.Waits != "":
		fmt.Fprintln(cmd.ErrOrStderr(), "not yet:", printable.Line(done.Waits))
	case len(done.Days) == 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "nothing to export; the next day is %s\n", done.Next)
	}
	return nil
}

// errNotYet says that a day cannot be exported yet.
var errNotYet = errors.New("cannot be exported yet")

// exportToFile writes the next day to a file, or goes on with one that was cut off, and then
// records that it was exported.
func (a *app) exportToFile(ctx context.Context, client *jobq.Client, dir string, state monitor.ExportState) (exportedDay, error) {
	day := state.Next.Format(time.DateOnly)
	file, err := openExport(dir, state.Next)
	if err != nil {
		return exportedDay{}, err
	}
	defer file.close()
	if err := file.read(); err != nil {
		return exportedDay{}, err
	}
	act := a.operator(client)
	if file.size == 0 || state.BeganAt == nil || !state.Begun.Equal(state.Next) || !file.beganAt.Equal(*state.BeganAt) {
		began, err := act.BeginExport(ctx, state.Next)
		if errors.Is(err, jobq.ErrConflict) {
			return exportedDay{}, errors.Join(fmt.Errorf("%s %w: %w", day, errNotYet, err), file.discardEmpty())
		}
		if err != nil {
			return exportedDay{}, errors.Join(err, file.discardEmpty())
		}
		if err := file.restart(client.Schema(), began); err != nil {
			return exportedDay{}, err
		}
	}
	if err := file.complete(ctx, client); err != nil {
		return exportedDay{}, err
	}
	one := exportedDay{Day: day, File: file.path, Jobs: file.jobs, Attempts: file.attempts}
	one.AuditID, err = act.EndExport(ctx, operator.Exported{Day: state.Next, BeganAt: file.beganAt, Jobs: file.jobs, Attempts: file.attempts})
	if err != nil {
		return one, fmt.Errorf("%s is whole, but not recorded as exported: %w", file.path, err)
	}
	return one, nil
}
