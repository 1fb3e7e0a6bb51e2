package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

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
	// NoClaimAhead has the worker claim no more jobs than it has free slots.
	NoClaimAhead bool
	// Limit is how many run at once over all workers, 0 for as many as they have slots
	// for. Nil leaves what is stored.
	Limit *int
	// KeyLimit is how many of each partition key run at once over all workers, 0 for as many as
	// of the queue. Nil leaves what is stored.
	KeyLimit *int
	// KeyOrder is whether the jobs of each partition key run in order, "" for no order. Nil leaves
	// what is stored.
	KeyOrder *string
	// KeySeparator is what ends the group of a partition key, "" for each key as its own group. Nil
	// leaves what is stored.
	KeySeparator *string
	// KeyWeights are weights of partition keys, 1 for none. Keys that are not in it keep what is stored.
	KeyWeights map[string]int
	// Rate is how many start over all workers, the zero Rate for as many as there are.
	// Nil leaves what is stored.
	Rate *Rate
	// KeyRate is how many of each partition key start over all workers, the zero Rate for as many
	// as of the queue. Nil leaves what is stored.
	KeyRate *Rate
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
		if name == "burst" || name == "key_rate_burst" { // which is a part of a rate, read below
			continue
		}
		if err := q.member(name, &value); err != nil {
			return err
		}
	}
	if value, given := members["burst"]; given {
		if err := burst("burst", &value, "rate", q.Rate); err != nil {
			return err
		}
	}
	if value, given := members["key_rate_burst"]; given {
		return burst("key_rate_burst", &value, "key_rate", q.KeyRate)
	}
	return nil
}

// member reads one of the members of a queue.
func (q *Queue) member(name string, value *yaml.Node) (err error) {
	switch {
	case name == "slots":
		q.Slots, err = number(value)
	case name == "claim_ahead":
		var ahead bool
		if err = value.Decode(&ahead); err != nil {
			err = fmt.Errorf("must be true or false, not %.50q", value.Value)
		}
		q.NoClaimAhead = !ahead
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
	case name == "key_separator":
		q.KeySeparator, err = separator(value)
	case name == "key_weights":
		q.KeyWeights, err = weights(value)
	case name == "rate":
		q.Rate, err = rate(value)
	case name == "key_rate":
		q.KeyRate, err = rate(value)
	case name == "age_after" && value.Value == none:
		q.AgeAfter = new(time.Duration)
	case name == "age_after":
		q.AgeAfter, err = age(value)
	case name == "retention":
		q.Retention, err = retention(value)
	case name == "failed_retention":
		q.FailedRetention, err = retention(value)
	default:
		err = errors.New("not known: a queue has slots, claim_ahead, limit, key_limit, key_order, key_separator, key_weights, rate, burst, key_rate, key_rate_burst, age_after, retention and failed_retention")
	}
	if err != nil {
		return fmt.Errorf("line %d: %s: %w", value.Line, name, err)
	}
	return nil
}

// separator is what ends the group of a partition key.
func separator(node *yaml.Node) (*string, error) {
	length := utf8.RuneCountInString(node.Value)
	switch {
	case node.Value == none:
		return new(string), nil
	case node.ShortTag() == "!!null", node.Kind != yaml.ScalarNode: // nothing, ~, or what begins a comment or a list
		return nil, errors.New("must be 1 to 8 characters, in quotes if YAML gives them another meaning, such as \"#\"; or none")
	case length < 1 || length > 8:
		return nil, fmt.Errorf("must be 1 to 8 characters, or none, not %d characters", length)
	}
	return &node.Value, nil
}

// keyWeightsMax is how many keys of a queue have weights in a file: each is looked up when a worker starts.
const keyWeightsMax = 1000

// weights reads the weights of partition keys.
func weights(value *yaml.Node) (map[string]int, error) {
	var weights map[string]int
	if err := value.Decode(&weights); err != nil {
		return nil, errors.New("must be partition keys, each with its weight, such as customer-17: 3")
	}
	if len(weights) > keyWeightsMax {
		return nil, fmt.Errorf("at most %d keys, not %d: set the others with \"jobq queues set NAME --key KEY --weight N\"", keyWeightsMax, len(weights))
	}
	for _, key := range slices.Sorted(maps.Keys(weights)) {
		switch weight := weights[key]; {
		case utf8.RuneCountInString(key) < 1 || utf8.RuneCountInString(key) > 255:
			return nil, fmt.Errorf("a partition key must be 1 to 255 characters, not %d", utf8.RuneCountInString(key))
		case weight < 1 || weight > 100:
			return nil, fmt.Errorf("%q must be 1 to 100, not %d", key, weight)
		}
	}
	return weights, nil
}

// rate reads a rate.
func rate(value *yaml.Node) (*Rate, error) {
	if value.Value == none {
		return new(Rate), nil
	}
	jobs, period, err := when.ParseRate(value.Value)
	return &Rate{Jobs: jobs, Period: period}, err
}

// burst reads the burst of a rate, once that is known: nil for none.
func burst(name string, value *yaml.Node, rateName string, rate *Rate) error {
	burst, err := number(value)
	if err == nil && (rate == nil || rate.Jobs == 0) {
		err = errors.New("needs a " + rateName)
	}
	if err != nil {
		return fmt.Errorf("line %d: %s: %w", value.Line, name, err)
	}
	rate.Burst = *burst
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
