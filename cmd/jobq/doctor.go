package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/doctor"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/metrics"
)

func newDoctorCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong with queues and database, and what to do",
		Long: `Say what is wrong with queues and database, and what to do: one line for
each finding, the worst first. It changes nothing, and no statement of it takes longer
than three seconds. docs/doctor.md says what each check means.

A check that this role may not do is said to be skipped; it is no finding. As
jobq_viewer with pg_read_all_stats all checks are done.

Exit codes: 0 healthy, or notes only; 5 warnings; 6 at least one critical finding. As
everywhere, 1 means that the database cannot be examined, and 2 a wrong command line.`,
		Example: `  jobq doctor
  jobq doctor --json | jq -r '.findings[].check'
  */10 * * * *  jobq doctor --quiet   # in a crontab: mail only what is wrong`,
		Args: exactArgs(0),
	}
	var quiet bool
	command.Flags().BoolVar(&quiet, "quiet", false, "write nothing when there is neither a warning nor a critical finding")
	a.addJSONFlag(command)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := a.uncheckedClient(cmd.Context())
		if err != nil {
			return err
		}
		defer client.Pool().Close()
		report, err := a.examine(cmd, client)
		if err != nil {
			return err
		}
		if !quiet || !report.Healthy {
			if err := a.writeReport(cmd.OutOrStdout(), report); err != nil {
				return err
			}
		}
		return doctorResult(report)
	}
	return command
}

// doctorResult is the exit code that the worst finding asks for.
func doctorResult(report *doctor.Report) error {
	switch report.Worst() {
	case doctor.Critical:
		return errors.Join(errSilent, exitStatus(exitCritical))
	case doctor.Warning:
		return errors.Join(errSilent, exitStatus(exitWarnings))
	default: // notes, or nothing
		return nil
	}
}

func (a *app) examine(cmd *cobra.Command, client *jobq.Client) (*doctor.Report, error) {
	return doctor.Run(cmd.Context(), doctor.Config{Pool: client.Pool(), Listen: client.Listen(), Schema: client.Schema(), Sessions: client.Sessions()})
}

// findings is how much is wrong, for metrics.
func (a *app) findings(cmd *cobra.Command, client *jobq.Client, log *slog.Logger) (metrics.Findings, error) {
	report, err := a.examine(cmd, client)
	if err != nil {
		log.Info("the database was not examined", "error", err)
		return metrics.Findings{}, err
	}
	counts := make(map[doctor.Severity]int)
	for _, f := range report.Findings {
		counts[f.Severity]++
	}
	return metrics.Findings{Critical: counts[doctor.Critical], Warning: counts[doctor.Warning], Note: counts[doctor.Note]}, nil
}

func (a *app) writeReport(out io.Writer, report *doctor.Report) error {
	if a.json {
		return writeJSON(out, report)
	}
	for _, f := range report.Findings {
		fmt.Fprintln(out, printable.Line(fmt.Sprintf("%-8s  %s: %s. To do: %s.", f.Severity, f.Check, f.Problem, f.Advice)))
	}
	for _, s := range report.Skipped {
		fmt.Fprintln(out, printable.Line(fmt.Sprintf("%-8s  %s: %s.", "skipped", s.Check, s.Reason)))
	}
	if report.Healthy {
		fmt.Fprintf(out, "healthy: %d checks, %d of them skipped in whole or in part\n", len(report.Checks), len(report.Skipped))
	}
	return nil
}
