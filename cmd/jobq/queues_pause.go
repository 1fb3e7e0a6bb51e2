package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
)

func newQueuesPauseCommand(a *app) *cobra.Command {
	var key, reason string
	var isNew bool
	command := &cobra.Command{
		Use: "pause NAME", Short: "Let workers claim nothing more from a queue, or of a key", Args: exactArgs(1),
		Long: `Let workers claim nothing more from a queue, or with --key nothing more of one of its
partition keys; what runs goes on. A key may be paused before its first job is there.`,
		Example: `  jobq queues pause email --reason "smtp is down"
  jobq queues pause import --new     # before its first job
  jobq queues pause reports --key customer-17 --reason "they ask for it"`,
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			if !isNew {
				known, err := monitor.New(client).QueueKnown(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if !known {
					return fmt.Errorf("%w (--new pauses a queue before its first job)", unknownQueue(cmd.Context(), client, args[0]))
				}
			}
			if key != "" {
				acted, err := a.operator(client).PauseKey(cmd.Context(), args[0], key, reason)
				if err != nil {
					return err
				}
				return a.sayChanged(cmd, changed{Queue: args[0], Key: key, AuditID: acted.AuditID, HasJobs: &acted.HasJobs}, "paused")
			}
			acted, err := a.operator(client).PauseQueue(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return a.sayChanged(cmd, changed{Queue: args[0], AuditID: acted.AuditID}, "paused")
		}),
	}
	command.Flags().StringVar(&key, "key", "", "only the jobs of this partition key")
	command.Flags().StringVar(&reason, "reason", "", "why, for others to read")
	command.Flags().BoolVar(&isNew, "new", false, "also a queue of which nothing is known yet")
	a.addJSONFlag(command)
	return command
}

func newQueuesResumeCommand(a *app) *cobra.Command {
	var key string
	command := &cobra.Command{
		Use: "resume NAME", Short: "Let workers claim from a queue again, or of a key", Args: exactArgs(1),
		Example: `  jobq queues resume email
  jobq queues resume reports --key customer-17`,
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			if key != "" {
				acted, err := a.operator(client).ResumeKey(cmd.Context(), args[0], key)
				if err != nil {
					return err
				}
				if !acted.Changed { // a misspelt queue is told all the same
					known, err := monitor.New(client).QueueKnown(cmd.Context(), args[0])
					switch {
					case err != nil:
						return err
					case !known:
						return unknownQueue(cmd.Context(), client, args[0])
					}
				}
				return a.sayChanged(cmd, changed{Queue: args[0], Key: key, AuditID: acted.AuditID, HasJobs: &acted.HasJobs}, "running")
			}
			acted, err := a.operator(client).ResumeQueue(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !acted.Known { // so it was not paused, and nothing has changed
				return unknownQueue(cmd.Context(), client, args[0])
			}
			return a.sayChanged(cmd, changed{Queue: args[0], AuditID: acted.AuditID}, "running")
		}),
	}
	command.Flags().StringVar(&key, "key", "", "only the jobs of this partition key")
	a.addJSONFlag(command)
	return command
}
