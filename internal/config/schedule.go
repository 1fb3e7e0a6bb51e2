package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/jobq-dev/jobq/internal/schedule"
)

// Schedule is a schedule that the file declares: see jobq.Schedule.
type Schedule struct {
	Cron          string   `yaml:"cron"`
	TimeZone      string   `yaml:"time_zone"`
	Every         Duration `yaml:"every"`
	Kind          string   `yaml:"kind"`
	Args          Value    `yaml:"args"`
	Queue         string   `yaml:"queue"`
	Priority      int16    `yaml:"priority"`
	MaxAttempts   int      `yaml:"max_attempts"`
	Timeout       Duration `yaml:"timeout"`
	BackoffBase   Duration `yaml:"backoff_base"`
	BackoffMax    Duration `yaml:"backoff_max"`
	Tags          []string `yaml:"tags"`
	Metadata      Value    `yaml:"metadata"`
	PartitionKey  string   `yaml:"partition_key"`
	CatchUp       string   `yaml:"catch_up"`
	CatchUpMax    int      `yaml:"catch_up_max"`
	CatchUpWithin Duration `yaml:"catch_up_within"`
	Overlap       string   `yaml:"overlap"`
}

// checkSchedules refuses what cannot be meant, and names the line.
func (f *File) checkSchedules(content []byte) error {
	keys := keyLines(content)
	if f.SchedulesVersion < 0 {
		return fmt.Errorf("line %d: schedules_version must be 0 or more, not %d", keys["schedules_version"].line, f.SchedulesVersion)
	}
	if f.Schedules != nil && f.App == "" {
		return errors.New("app is missing: whose schedules they are")
	}
	f.ScheduleLines = make(map[string]int)
	for _, name := range slices.Sorted(maps.Keys(f.Schedules)) {
		s := f.Schedules[name]
		f.ScheduleLines[name] = keys["schedules"].members[name]
		if err := s.check(); err != nil {
			return f.ScheduleError(name, err)
		}
	}
	return nil
}

// ScheduleError is an error of a schedule of the file, with its line.
func (f *File) ScheduleError(name string, err error) error {
	return fmt.Errorf("line %d: schedules: %s: %w", f.ScheduleLines[name], name, err)
}

func (s *Schedule) check() error {
	if s.Kind == "" {
		return errors.New("kind is missing: that of the job to add")
	}
	if (s.Cron == "") == (s.Every == 0) {
		return errors.New("either cron or every must be given")
	}
	if s.Every != 0 && s.TimeZone != "" {
		return errors.New("time_zone is for cron: every so often is the same everywhere")
	}
	_, err := schedule.Of(s.Cron, cmp.Or(s.TimeZone, time.UTC.String()), time.Duration(s.Every))
	return err
}

// key is where a key of the file stands, and the keys of its value.
type key struct {
	line    int
	members map[string]int
}

// keyLines are the keys of the file.
func keyLines(content []byte) map[string]key {
	keys := make(map[string]key)
	var root yaml.Node
	if yaml.Unmarshal(content, &root) != nil || len(root.Content) == 0 {
		return keys // it was read before
	}
	pairs := root.Content[0].Content
	for i := 0; i+1 < len(pairs); i += 2 {
		found := key{pairs[i].Line, make(map[string]int)}
		members := pairs[i+1].Content
		for at := 0; at+1 < len(members); at += 2 {
			found.members[members[at].Value] = members[at].Line
		}
		keys[pairs[i].Value] = found
	}
	return keys
}
