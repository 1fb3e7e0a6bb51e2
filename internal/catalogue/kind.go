package catalogue

import (
	"time"

	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// KindSetting is a setting of a kind.
type KindSetting = Setting[operator.KindChange, monitor.KindSettings]

// KindSettings are all of them, in the order in which people are shown them: first those of its jobs.
func KindSettings() []KindSetting {
	byDefault := monitor.DefaultKindSettings()
	return []KindSetting{
		setting("queue", "the queue of jobs that are given none", texts(128),
			func(c *operator.KindChange) **string { return &c.Queue }, func(s *monitor.KindSettings) string { return s.Queue }, inKind(byDefault.Queue)),
		setting("priority", "their priority: lower runs first", priorities(),
			func(c *operator.KindChange) **int16 { return &c.Priority }, func(s *monitor.KindSettings) int16 { return s.Priority }, inKind(byDefault.Priority)),
		setting("max_attempts", "how many of their runs may end badly", counts(),
			func(c *operator.KindChange) **int { return &c.MaxAttempts }, func(s *monitor.KindSettings) int { return s.MaxAttempts }, inKind(byDefault.MaxAttempts)),
		setting("timeout", "how long a run of theirs may take", durations().orNone(),
			func(c *operator.KindChange) **time.Duration { return &c.Timeout }, func(s *monitor.KindSettings) time.Duration { return s.Timeout }, inKind(byDefault.Timeout)),
		setting("backoff_base", "the longest wait after their first failed attempt; it doubles with each further one", durations(),
			func(c *operator.KindChange) **time.Duration { return &c.BackoffBase }, func(s *monitor.KindSettings) time.Duration { return s.BackoffBase }, inKind(byDefault.BackoffBase)),
		setting("backoff_max", "the longest wait after any failed attempt", durations(),
			func(c *operator.KindChange) **time.Duration { return &c.BackoffMax }, func(s *monitor.KindSettings) time.Duration { return s.BackoffMax }, inKind(byDefault.BackoffMax)),
		setting("owner", "who is responsible for the kind, such as a team", texts(255).orNone(),
			func(c *operator.KindChange) **string { return &c.Owner }, func(s *monitor.KindSettings) string { return s.Owner }, inKind(byDefault.Owner)),
		setting("runbook", "what to do when its jobs fail, such as a URL", texts(1024).orNone(),
			func(c *operator.KindChange) **string { return &c.Runbook }, func(s *monitor.KindSettings) string { return s.Runbook }, inKind(byDefault.Runbook)),
	}
}

// KindChange reads values by the names of their settings. Its errors are of type *SettingError.
func KindChange(values map[string]string) (operator.KindChange, error) {
	return read("kind", KindSettings(), values)
}

// KindSettingNames are the names of all settings of a kind.
func KindSettingNames() []string { return names(KindSettings()) }

// KindSet are the settings of a kind that are not as by default, such as "queue=mail max_attempts=3".
func KindSet(stored *monitor.KindSettings) string { return changed(KindSettings(), stored) }

func inKind[T any](value T) func(*monitor.KindSettings) T {
	return func(*monitor.KindSettings) T { return value }
}
