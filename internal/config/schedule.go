package config

import (
	"cmp"
	"encoding/json"
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
	Args          any      `yaml:"args"`
	Queue         string   `yaml:"queue"`
	Priority      int16    `yaml:"priority"`
	MaxAttempts   int      `yaml:"max_attempts"`
	Timeout       Duration `yaml:"timeout"`
	BackoffBase   Duration `yaml:"backoff_base"`
	BackoffMax    Duration `yaml:"backoff_max"`
	Tags          []string `yaml:"tags"`
	Metadata      any      `yaml:"metadata"`
	CatchUp       string   `yaml:"catch_up"`
	CatchUpMax    int      `yaml:"catch_up_max"`
	CatchUpWithin Duration `yaml:"catch_up_within"`
	Overlap       string   `yaml:"overlap"`
}

// JSON is a value of the file as JSON: nil for none.
func JSON(value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	return json.Marshal(value)
}

// checkSchedules refuses what cannot be meant, and names the line.
func (f *File) checkSchedules(content []byte) error {
	if f.Schedules != nil && f.App == "" {
		return errors.New("app is missing: whose schedules they are")
	}
	lines := scheduleLines(content)
	for _, name := range slices.Sorted(maps.Keys(f.Schedules)) {
		s := f.Schedules[name]
		if err := s.check(); err != nil {
			return fmt.Errorf("line %d: schedules: %s: %w", lines[name], name, err)
		}
	}
	return nil
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
	for name, value := range map[string]any{"args": s.Args, "metadata": s.Metadata} {
		if _, err := JSON(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	_, err := schedule.Of(s.Cron, cmp.Or(s.TimeZone, time.UTC.String()), time.Duration(s.Every))
	return err
}

// scheduleLines are the lines at which schedules begin, by their names.
func scheduleLines(content []byte) map[string]int {
	lines := make(map[string]int)
	var root yaml.Node
	if yaml.Unmarshal(content, &root) != nil || len(root.Content) == 0 {
		return lines // it was read before
	}
	for i, key := range root.Content[0].Content {
		if i%2 == 0 && key.Value == "schedules" {
			names := root.Content[0].Content[i+1].Content
			for at := 0; at+1 < len(names); at += 2 {
				lines[names[at].Value] = names[at].Line
			}
		}
	}
	return lines
}
