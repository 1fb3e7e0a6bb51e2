package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// tagsFlag is tags, each of them whole: pflag's own slices are CSV, where a comma makes two and a quote is an error. An
// empty tag, which an unset variable of a script leaves behind, is none.
type tagsFlag []string

// tagsVar adds --tag.
func tagsVar(flags *pflag.FlagSet, target *[]string, usage string) {
	flags.Var((*tagsFlag)(target), "tag", usage)
}

// Set adds one.
func (f *tagsFlag) Set(text string) error {
	if *f == nil {
		*f = tagsFlag{} // given, and none so far
	}
	if text != "" {
		*f = append(*f, text)
	}
	return nil
}

func (f *tagsFlag) String() string { return strings.Join(*f, ",") }

// Type names the value in the help.
func (f *tagsFlag) Type() string { return "string" }

// namesFlag is names with commas between them; nothing else in them has a meaning.
type namesFlag []string

// namesVar adds a flag that is names.
func namesVar(flags *pflag.FlagSet, target *[]string, name, usage string) {
	flags.Var((*namesFlag)(target), name, usage)
}

// Set adds some.
func (f *namesFlag) Set(text string) error {
	if text == "" {
		return nil // refuseEmpty says so
	}
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return errors.New("an item is empty")
		}
		*f = append(*f, item)
	}
	return nil
}

func (f *namesFlag) String() string { return strings.Join(*f, ",") }

// Type names the value in the help.
func (f *namesFlag) Type() string { return "strings" }

// backoffVars adds the flags of how long a job waits between its attempts.
func backoffVars(flags *pflag.FlagSet, base, most *time.Duration) {
	durationVar(flags, base, "backoff-base", 0, "longest wait after the first failed attempt (default 1s)")
	durationVar(flags, most, "backoff-max", 0, "longest wait after any failed attempt (default 1d)")
}

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
