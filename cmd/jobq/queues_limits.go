package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// limitFlags are those of a queue's limits.
type limitFlags struct {
	limit, keyLimit, burst      int
	rate, keyOrder              string
	keyRate                     string
	keyBurst                    int
	noKeyRate                   bool
	noLimit, noKeyLimit, noRate bool
	noKeyOrder                  bool
	keySeparator                string
	noKeySeparator              bool
}

func (l *limitFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.IntVar(&l.limit, "limit", 0, "how many jobs run at once, over all workers")
	flags.BoolVar(&l.noLimit, "no-limit", false, "as many as the workers have slots for")
	flags.IntVar(&l.keyLimit, "key-limit", 0, "how many jobs of each partition key run at once, over all workers")
	flags.BoolVar(&l.noKeyLimit, "no-key-limit", false, "as many of a key as of the queue")
	flags.StringVar(&l.keyOrder, "key-order", "", "run the jobs of each partition key in order; one that waits for its retry makes the next ones wait (hold) or not (pass), and one that has failed for good stops its key (stop)")
	flags.BoolVar(&l.noKeyOrder, "no-key-order", false, "in no strict order")
	flags.StringVar(&l.keySeparator, "key-separator", "", "what ends the group of a partition key, such as /: groups have equal shares of the queue, however many keys they have")
	flags.BoolVar(&l.noKeySeparator, "no-key-separator", false, "each partition key has its own share")
	flags.StringVar(&l.rate, "rate", "", "how many jobs start, over all workers: 100/s, 5/m, 1000/h or 10/30s")
	flags.IntVar(&l.burst, "burst", 0, "with --rate, how many start at once after a pause (default a tenth of a second's)")
	flags.BoolVar(&l.noRate, "no-rate", false, "as many as there are")
	flags.StringVar(&l.keyRate, "key-rate", "", "how many jobs of each partition key start, over all workers, as --rate takes it")
	flags.IntVar(&l.keyBurst, "key-rate-burst", 0, "with --key-rate, how many of a key start at once after a pause (default a tenth of a second's)")
	flags.BoolVar(&l.noKeyRate, "no-key-rate", false, "as many of a key as of the queue")
	command.MarkFlagsMutuallyExclusive("limit", "no-limit")
	command.MarkFlagsMutuallyExclusive("key-limit", "no-key-limit")
	command.MarkFlagsMutuallyExclusive("key-order", "no-key-order")
	command.MarkFlagsMutuallyExclusive("key-separator", "no-key-separator")
	command.MarkFlagsMutuallyExclusive("rate", "no-rate")
	command.MarkFlagsMutuallyExclusive("key-rate", "no-key-rate")
}

// change adds what was given.
func (l *limitFlags) change(given func(name string) bool, change *operator.QueueChange) error {
	switch {
	case given("limit") && l.limit < 1:
		return usagef("--limit must be 1 or more; --no-limit takes it away, and \"jobq queues pause\" stops the queue")
	case given("limit"):
		change.MaxRunning = &l.limit
	case l.noLimit:
		change.MaxRunning = new(int)
	}
	switch {
	case given("key-limit") && l.keyLimit < 1:
		return usagef("--key-limit must be 1 or more; --no-key-limit takes it away")
	case given("key-limit"):
		change.KeyLimit = &l.keyLimit
	case l.noKeyLimit:
		change.KeyLimit = new(int)
	}
	switch {
	case given("key-order") && l.keyOrder == "":
		return usagef("--key-order must be hold, pass or stop; --no-key-order takes it away")
	case given("key-order"):
		change.KeyOrder = new(jobq.KeyOrder(l.keyOrder))
	case l.noKeyOrder:
		change.KeyOrder = new(jobq.KeyOrderNone)
	}
	switch {
	case given("key-separator"):
		change.KeySeparator = &l.keySeparator
	case l.noKeySeparator:
		change.KeySeparator = new(string)
	}
	var err error
	if change.Rate, err = rateFlags(given, "rate", "burst", l.rate, l.burst, l.noRate); err != nil {
		return err
	}
	change.KeyRate, err = rateFlags(given, "key-rate", "key-rate-burst", l.keyRate, l.keyBurst, l.noKeyRate)
	return err
}

// rateFlags is the rate that the flags of these names give or take away; nil for neither.
func rateFlags(given func(name string) bool, name, burstName, text string, burst int, none bool) (*jobq.Rate, error) {
	switch {
	case given(burstName) && !given(name):
		return nil, usagef("--%s needs --%s", burstName, name)
	case given(burstName) && burst < 1:
		return nil, usagef("--%s must be 1 or more", burstName)
	case given(name):
		rate, err := parseQueueRate(name, text)
		rate.Burst = burst
		return &rate, err
	case none:
		return new(jobq.Rate), nil
	}
	return nil, nil
}

// parseQueueRate reads a flag such as --rate.
func parseQueueRate(flag, text string) (rate jobq.Rate, err error) {
	if rate.Jobs, rate.Period, err = when.ParseRate(text); err != nil {
		return rate, usagef("--%s %w", flag, err)
	}
	return rate, nil
}

// formatLimits are the limits of a queue for a list, such as "3, 100/s".
func formatLimits(queue monitor.Queue) string {
	var limits []string
	if queue.MaxRunning > 0 {
		limits = append(limits, strconv.Itoa(queue.MaxRunning))
	}
	if queue.KeyLimit > 0 {
		limits = append(limits, strconv.Itoa(queue.KeyLimit)+" a key")
	}
	if queue.KeyOrder != jobq.KeyOrderNone {
		limits = append(limits, "in order")
	}
	if queue.KeySeparator != "" {
		limits = append(limits, format.KeyGroups(queue.KeySeparator))
	}
	if queue.KeyRate != nil {
		limits = append(limits, format.QueueRate(queue.KeyRate)+" a key")
	}
	if queue.Rate != nil {
		limits = append(limits, format.QueueRate(queue.Rate))
	}
	return strings.Join(limits, ", ")
}

// formatThrottled says until when the rate keeps jobs from starting.
func formatThrottled(until *time.Time) string {
	if until == nil {
		return "no"
	}
	return "for " + when.FormatDuration(max(time.Until(*until).Round(time.Millisecond), 0))
}
