package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobq-dev/jobq/internal/when"
)

// durationFlag is a duration such as 30d. It takes the place of pflag's own
// durations, which know no days.
type durationFlag time.Duration

// durationVar adds a flag that is a duration.
func durationVar(flags *pflag.FlagSet, target *time.Duration, name string, value time.Duration, usage string) {
	*target = value
	flags.Var((*durationFlag)(target), name, usage)
}

// Set reads it.
func (f *durationFlag) Set(text string) error {
	duration, err := when.ParseDuration(text)
	*f = durationFlag(duration)
	return err
}

// String writes it. The zero value is what pflag leaves out of the help.
func (f *durationFlag) String() string {
	if *f == 0 {
		return "0"
	}
	return when.FormatDuration(time.Duration(*f))
}

// Type names the value in the help.
func (f *durationFlag) Type() string { return "duration" }

// refuseEmpty refuses a text that is given and empty, which is what an unset
// variable of a script leaves behind. It would mean the default: another
// database than the one meant, or all queues.
func refuseEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		text := flag.Value.String()
		isEmpty := text == "" || text == "[]"
		if isEmpty && !slices.Contains([]string{"reason", "tag", "message", "stage", "filter"}, flag.Name) && err == nil {
			err = usagef("--%s is empty: leave it out for the default", flag.Name)
		}
	})
	return err
}

// refuseZero refuses these flags when they are given as 0. Their users would
// expect "none" or "no limit", but the packages below take 0 for the default.
func refuseZero(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "0" {
			return usagef("--%s must be more than 0: leave it out for the default", name)
		}
	}
	return nil
}

// momentFlag is a moment as people write one, such as "tomorrow 09:00".
type momentFlag struct {
	at    time.Time
	local bool // read in the zone of this machine, or counted from now
	text  string
}

// runAtUsage is the help of every --run-at.
const runAtUsage = "earliest start: " + when.Forms

// Set reads it.
func (f *momentFlag) Set(text string) (err error) {
	f.text = text
	f.at, f.local, err = when.Parse(text, time.Now())
	return err
}

func (f *momentFlag) String() string { return f.text }

// Type names the value in the help.
func (f *momentFlag) Type() string { return "time" }

// say tells what a time was taken for that does not say so itself: in which
// zone, or counted from now. One that is over is told too: it is seldom meant.
func (f *momentFlag) say(cmd *cobra.Command) {
	now := time.Now()
	over := f.at.Before(now.Add(-time.Minute))
	if f.text == "" || !f.local && !over {
		return
	}
	note := ""
	if over {
		note = ": it can start at once"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "earliest start: %s%s\n", when.Describe(f.at, now), note)
}
