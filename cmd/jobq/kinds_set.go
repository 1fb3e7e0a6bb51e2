package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/catalogue"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/operator"
)

func newKindsSetCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "set KIND SETTING=VALUE...",
		Short: "Change settings of a kind",
		Long: `Change settings of a kind. They are kept in the database. Those of jobs hold for each new job whose producer gives none, in every language, and for schedules; jobs that are there keep theirs. What is not given stays as it is.

` + settingsHelp(catalogue.KindSettings()) + `
The default takes a setting away. docs/configuration.md says what comes before a kind's settings.`,
		Example: `  jobq kinds set mail queue=mail max_attempts=3 backoff_base=10s
  jobq kinds set mail owner=team-mail runbook=https://wiki.example.com/mail
  jobq kinds set mail timeout=none`,
		Args: rangeArgs(2, 1000),
		RunE: func(cmd *cobra.Command, args []string) error {
			values, err := settingValues(args[1:])
			if err != nil {
				return err
			}
			change, err := catalogue.KindChange(values)
			if wrong := (*catalogue.SettingError)(nil); errors.As(err, &wrong) {
				return usagef("%w%s", err, didYouMean(wrong.Name, otherThan(wrong.Name, catalogue.KindSettingNames())))
			} else if err != nil {
				return err
			}
			return a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
				return a.setKind(cmd, client, args[0], change)
			})(cmd, args)
		},
		ValidArgsFunction: completeSettings(catalogue.KindSettingNames()),
	}
	a.addJSONFlag(command)
	return command
}

func (a *app) setKind(cmd *cobra.Command, client *jobq.Client, kind string, change operator.KindChange) error {
	unknown := kindKnown(cmd.Context(), client, kind)
	id, err := a.operator(client).SetKind(cmd.Context(), kind, change)
	if err != nil {
		return err
	}
	if err := a.sayChanged(cmd, changed{Kind: kind, AuditID: id}, "set"); err != nil {
		return err
	}
	if of := (notFoundError{}); errors.As(unknown, &of) { // misspelt, or set before its first job
		fmt.Fprintf(cmd.ErrOrStderr(), "note: before this, %s\n", printable.Line(unknown.Error()))
	}
	return nil
}
