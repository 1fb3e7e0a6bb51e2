package catalogue

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// QueueSetting is a setting of a queue.
type QueueSetting = Setting[operator.QueueChange, monitor.QueueSettings]

// QueueSettings are all of them, in the order in which people are shown them.
func QueueSettings() []QueueSetting {
	return slices.Concat(flow(), recovery(), kept())
}

// flow are those that say which jobs start, and when.
func flow() []QueueSetting {
	rateOf := func(c *operator.QueueChange) **jobq.Rate { return &c.Rate }
	keyRateOf := func(c *operator.QueueChange) **jobq.Rate { return &c.KeyRate }
	storedRate := func(s *monitor.QueueSettings) *jobq.Rate { return s.Rate }
	storedKeyRate := func(s *monitor.QueueSettings) *jobq.Rate { return s.KeyRate }
	return []QueueSetting{
		setting("limit", "how many jobs run at once, over all workers", counts().orNone(),
			func(c *operator.QueueChange) **int { return &c.MaxRunning }, func(s *monitor.QueueSettings) int { return s.MaxRunning }, constant(0)),
		rate("rate", "how many jobs start, over all workers", rateOf, storedRate),
		burst("burst", "how many start at once after a pause; default a tenth of a second's", "rate", rateOf, storedRate),
		setting("key_limit", "how many jobs of each partition key run at once, over all workers", counts().orNone(),
			func(c *operator.QueueChange) **int { return &c.KeyLimit }, func(s *monitor.QueueSettings) int { return s.KeyLimit }, constant(0)),
		setting("key_order", "run the jobs of each partition key in order; one that waits for its retry makes the next ones wait (hold) or not (pass), and one that has failed for good stops its key (stop)",
			oneOf(jobq.KeyOrderHold, jobq.KeyOrderPass, jobq.KeyOrderStop, jobq.KeyOrderNone),
			func(c *operator.QueueChange) **jobq.KeyOrder { return &c.KeyOrder }, func(s *monitor.QueueSettings) jobq.KeyOrder { return s.KeyOrder }, constant(jobq.KeyOrderNone)),
		rate("key_rate", "how many jobs of each partition key start, over all workers", keyRateOf, storedKeyRate),
		burst("key_rate_burst", "how many of a key start at once after a pause; default a tenth of a second's", "key_rate", keyRateOf, storedKeyRate),
		setting("key_separator", "what ends the group of a partition key, such as /: groups have equal shares of the queue, however many keys they have", separators().orNone(),
			func(c *operator.QueueChange) **string { return &c.KeySeparator }, func(s *monitor.QueueSettings) string { return s.KeySeparator }, constant("")),
		setting("age_after", "how long the first job of a priority waits before the priority has its turns among more urgent ones", durations().orNone(),
			func(c *operator.QueueChange) **time.Duration { return &c.AgeAfter }, func(s *monitor.QueueSettings) time.Duration { return s.AgeAfter }, constant(jobq.DefaultAgeAfter)),
	}
}

// recovery are those that say how leases are kept, and what becomes of jobs whose lease has ended.
func recovery() []QueueSetting {
	return []QueueSetting{
		setting("lease", "how long a worker may hold a job without a heartbeat, 1s to 30d", durations(),
			func(c *operator.QueueChange) **time.Duration { return &c.Lease }, func(s *monitor.QueueSettings) time.Duration { return s.Lease }, constant(jobq.DefaultLease)),
		setting("extend_every", "time between two heartbeats, at most half of the lease; default a third of it", durations(),
			func(c *operator.QueueChange) **time.Duration { return &c.ExtendEvery }, func(s *monitor.QueueSettings) time.Duration { return s.ExtendEvery },
			func(s *monitor.QueueSettings) time.Duration { return s.Lease / 3 }),
		setting("heartbeat", "what extends a lease", oneOf(jobq.HeartbeatTicker, jobq.HeartbeatProgress, jobq.HeartbeatBoth, jobq.HeartbeatOff),
			func(c *operator.QueueChange) **jobq.Heartbeat { return &c.Heartbeat }, func(s *monitor.QueueSettings) jobq.Heartbeat { return s.Heartbeat }, constant(jobq.HeartbeatTicker)),
		setting("stale_grace", "how long a lease that has ended is left alone", durations().orNone(),
			func(c *operator.QueueChange) **time.Duration { return &c.StaleGrace }, func(s *monitor.QueueSettings) time.Duration { return s.StaleGrace }, constant(time.Duration(0))),
		setting("redelivery", "where in the line a job goes whose lease was taken away", oneOf(jobq.RedeliveryTail, jobq.RedeliveryHead),
			func(c *operator.QueueChange) **jobq.Redelivery { return &c.Redelivery }, func(s *monitor.QueueSettings) jobq.Redelivery { return s.Redelivery }, constant(jobq.RedeliveryTail)),
		setting("redelivery_delay", "how long such a job waits before it goes to the tail", durations().orNone(),
			func(c *operator.QueueChange) **time.Duration { return &c.RedeliveryDelay }, func(s *monitor.QueueSettings) time.Duration { return s.RedeliveryDelay }, constant(time.Duration(0))),
		setting("reset_on_reap", "begin the next run without the lost one's checkpoint", truths(),
			func(c *operator.QueueChange) **bool { return &c.ResetOnReap }, func(s *monitor.QueueSettings) bool { return s.ResetOnReap }, constant(false)),
		setting("max_lost", "how many runs of a job may be lost without using an attempt, unless the job says it; none: each uses one", counts().orNone(),
			func(c *operator.QueueChange) **int { return &c.MaxLost }, func(s *monitor.QueueSettings) int { return s.MaxLost }, constant(0)),
	}
}

// kept are those of jobs that have ended.
func kept() []QueueSetting {
	return []QueueSetting{
		setting("retention", "how long finished jobs are kept, 1d to 10 years; none is as long as in all queues", durations().orNone(),
			func(c *operator.QueueChange) **time.Duration { return &c.Retention }, func(s *monitor.QueueSettings) time.Duration { return s.Retention }, constant(time.Duration(0))),
		setting("failed_retention", "how long those of them are kept that failed or were cancelled; none is as long as the others, or as in all queues", durations().orNone(),
			func(c *operator.QueueChange) **time.Duration { return &c.FailedRetention }, func(s *monitor.QueueSettings) time.Duration { return s.FailedRetention }, constant(time.Duration(0))),
	}
}

// QueueChange reads values by the names of their settings. Its errors are of type *SettingError.
func QueueChange(values map[string]string) (operator.QueueChange, error) {
	return read("queue", QueueSettings(), values)
}

// QueueSettingNames are the names of all settings of a queue.
func QueueSettingNames() []string { return names(QueueSettings()) }

// QueueSettingNamed is the setting of that name.
func QueueSettingNamed(name string) (QueueSetting, bool) { return named(QueueSettings(), name) }

// Defaults are the settings of a queue that nobody has set.
func Defaults() monitor.QueueSettings {
	return monitor.QueueSettings{
		Lease: jobq.DefaultLease, ExtendEvery: jobq.DefaultExtendEvery, Heartbeat: jobq.HeartbeatTicker,
		Redelivery: jobq.RedeliveryTail, AgeAfter: jobq.DefaultAgeAfter,
	}
}

// Set are the settings of a queue that are not as by default, such as "limit=3 rate=100/s".
func Set(stored *monitor.QueueSettings) string { return changed(QueueSettings(), stored) }

func constant[T any](value T) func(*monitor.QueueSettings) T {
	return func(*monitor.QueueSettings) T { return value }
}

// rate is how many jobs start in each period. A burst that is not given keeps what is stored, unless the rate changes.
func rate(name, help string, member func(*operator.QueueChange) **jobq.Rate, stored func(*monitor.QueueSettings) *jobq.Rate) QueueSetting {
	takes := rates().orNone()
	return QueueSetting{
		Name: name, Takes: takes.says, Help: help,
		set: func(c *operator.QueueChange, text string) error {
			value, err := takes.parse(text)
			*member(c) = &value
			return err
		},
		text: func(s *monitor.QueueSettings) string {
			if stored(s) == nil {
				return none
			}
			return takes.format(*stored(s))
		},
		isDefault: func(s *monitor.QueueSettings) bool { return stored(s) == nil },
	}
}

// burst is a part of the rate of that name.
func burst(name, help, rateName string, member func(*operator.QueueChange) **jobq.Rate, stored func(*monitor.QueueSettings) *jobq.Rate) QueueSetting {
	return QueueSetting{
		Name: name, Takes: "a number of at least 1, beside a " + rateName, Help: help,
		set: func(c *operator.QueueChange, text string) error {
			rate := *member(c)
			if rate == nil || rate.Jobs == 0 {
				return fmt.Errorf("needs a %s beside it", rateName)
			}
			var err error
			rate.Burst, err = counts().parse(text)
			return err
		},
		text: func(s *monitor.QueueSettings) string {
			if stored(s) == nil {
				return none
			}
			return fmt.Sprint(stored(s).Burst)
		},
		isDefault: func(s *monitor.QueueSettings) bool {
			return stored(s) == nil || stored(s).Burst == defaultBurst(*stored(s))
		},
	}
}
