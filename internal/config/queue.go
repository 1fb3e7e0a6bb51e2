package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/jobq-dev/jobq/internal/when"
)

// none is the value of a limit that takes it away.
const none = "none"

// Queue is a queue to claim from: a number, its slots, or slots together with limits, which
// hold over all workers.
type Queue struct {
	// Slots are how many of its jobs run at once in the worker; nil for the default.
	Slots *int
	// Limit is how many run at once over all workers, 0 for as many as they have slots
	// for. Nil leaves what is stored.
	Limit *int
	// KeyLimit is how many of each partition key run at once over all workers, 0 for as many as
	// of the queue. Nil leaves what is stored.
	KeyLimit *int
	// KeyOrder is whether the jobs of each partition key run in order, "" for no order. Nil leaves
	// what is stored.
	KeyOrder *string
	// Rate is how many start over all workers, the zero Rate for as many as there are.
	// Nil leaves what is stored.
	Rate *Rate
	// AgeAfter is how long the first job of a priority waits before the priority has its turns
	// among more urgent ones, 0 for ever. Nil leaves what is stored.
	AgeAfter *time.Duration
	// Retention is how long its finished jobs are kept, and FailedRetention how long those of them that
	// failed or were cancelled, 0 for as long as in all queues. Nil leaves what is stored.
	Retention, FailedRetention *time.Duration
	// Line is where the queue begins in the file.
	Line int
}

// Rate is how many jobs start in each period. Burst is 0 for the one that is stored.
type Rate struct {
	Jobs   int
	Period time.Duration
	Burst  int
}

// UnmarshalYAML reads it.
func (q *Queue) UnmarshalYAML(node *yaml.Node) error {
	q.Line = node.Line
	if node.Kind == yaml.ScalarNode {
		return q.member("slots", node)
	}
	var members map[string]yaml.Node
	if err := node.Decode(&members); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := members[name]
		if name == "burst" { // which is a part of the rate, read below
			continue
		}
		if err := q.member(name, &value); err != nil {
			return err
		}
	}
	if burst, given := members["burst"]; given {
		return q.burst(&burst)
	}
	return nil
}

// member reads one of the members of a queue.
func (q *Queue) member(name string, value *yaml.Node) (err error) {
	switch {
	case name == "slots":
		q.Slots, err = number(value)
	case name == "limit" && value.Value == none:
		q.Limit = new(int)
	case name == "limit":
		q.Limit, err = number(value)
	case name == "key_limit" && value.Value == none:
		q.KeyLimit = new(int)
	case name == "key_limit":
		q.KeyLimit, err = number(value)
	case name == "key_order" && value.Value == none:
		q.KeyOrder = new(string)
	case name == "key_order":
		q.KeyOrder = new(value.Value)
		if value.Value == "" {
			err = errors.New("must be hold, pass, stop or none")
		}
	case name == "rate" && value.Value == none:
		q.Rate = new(Rate)
	case name == "rate":
		q.Rate = new(Rate)
		q.Rate.Jobs, q.Rate.Period, err = when.ParseRate(value.Value)
	case name == "age_after" && value.Value == none:
		q.AgeAfter = new(time.Duration)
	case name == "age_after":
		q.AgeAfter, err = age(value)
	case name == "retention":
		q.Retention, err = retention(value)
	case name == "failed_retention":
		q.FailedRetention, err = retention(value)
	default:
		err = errors.New("not known: a queue has slots, limit, key_limit, key_order, rate, burst, age_after, retention and failed_retention")
	}
	if err != nil {
		return fmt.Errorf("line %d: %s: %w", value.Line, name, err)
	}
	return nil
}

// burst reads the burst, once the rate is known.
func (q *Queue) burst(value *yaml.Node) error {
	burst, err := number(value)
	if err == nil && (q.Rate == nil || q.Rate.Jobs == 0) {
		err = errors.New("needs a rate")
	}
	if err != nil {
		return fmt.Errorf("line %d: burst: %w", value.Line, err)
	}
	q.Rate.Burst = *burst
	return nil
}

// number is a number of at least 1.
func number(node *yaml.Node) (*int, error) {
	value, err := strconv.Atoi(node.Value)
	if err != nil || value < 1 || node.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("must be a number of at least 1, not %.50q", node.Value)
	}
	return &value, nil
}

// age is how long a priority waits until it ages.
func age(node *yaml.Node) (*time.Duration, error) {
	age, err := when.ParseDuration(node.Value)
	if err != nil || age <= 0 || node.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("must be a duration such as 10m, or none, not %.50q", node.Value)
	}
	return &age, nil
}

// retention is how long finished jobs are kept.
func retention(node *yaml.Node) (*time.Duration, error) {
	if node.Value == none {
		return new(time.Duration), nil
	}
	retention, err := when.ParseDuration(node.Value)
	if err != nil || retention <= 0 || node.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("must be a duration of at least a day, such as 90d, or none, not %.50q", node.Value)
	}
	return &retention, nil
}

// QueueError is an error of a queue of the file, with its line.
func (f *File) QueueError(name string, err error) error {
	return fmt.Errorf("line %d: queues: %s: %w", f.Queues[name].Line, name, err)
}
