package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/jobq-dev/jobq/internal/catalogue"
	"github.com/jobq-dev/jobq/operator"
)

// Queue is a queue to claim from: a number, its slots, or slots together with limits, which
// hold over all workers.
type Queue struct {
	// Slots are how many of its jobs run at once in the worker; nil for the default.
	Slots *int
	// NoClaimAhead has the worker claim no more jobs than it has free slots.
	NoClaimAhead bool
	// KeyWeights are weights of partition keys, 1 for none. Keys that are not in it keep what is stored.
	KeyWeights map[string]int
	// Change is what the file says of the settings of the queue, which hold over all workers. What it does not
	// name keeps what is stored.
	Change operator.QueueChange
	// Line is where the queue begins in the file.
	Line int
}

// UnmarshalYAML reads it.
func (q *Queue) UnmarshalYAML(node *yaml.Node) error {
	q.Line = node.Line
	if node.Kind == yaml.ScalarNode {
		if err := q.member("slots", node); err != nil {
			return fmt.Errorf("line %d: slots: %w", node.Line, err)
		}
		return nil
	}
	var members map[string]yaml.Node
	if err := node.Decode(&members); err != nil {
		return err
	}
	settings := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := members[name]
		if slices.Contains(workerMembers, name) {
			if err := q.member(name, &value); err != nil {
				return fmt.Errorf("line %d: %s: %w", value.Line, name, err)
			}
			continue
		}
		if value.Kind != yaml.ScalarNode || value.ShortTag() == "!!null" { // ~, or what begins a comment or a list
			return fmt.Errorf("line %d: %s: must be a single value, in quotes if YAML gives it another meaning, such as \"#\"", value.Line, name)
		}
		settings[name] = value.Value
	}
	var err error
	q.Change, err = catalogue.QueueChange(settings)
	if wrong := (*catalogue.SettingError)(nil); errors.As(err, &wrong) {
		if _, known := catalogue.QueueSettingNamed(wrong.Name); !known {
			err = &catalogue.SettingError{Name: wrong.Name, Err: fmt.Errorf("not known: a queue has %s, %s", strings.Join(workerMembers, ", "), strings.Join(catalogue.QueueSettingNames(), ", "))}
		}
		return fmt.Errorf("line %d: %w", members[wrong.Name].Line, err)
	}
	return err
}

// workerMembers are the members of a queue that are about this worker, or about single keys.
var workerMembers = []string{"slots", "claim_ahead", "key_weights"}

// member reads one of these.
func (q *Queue) member(name string, value *yaml.Node) (err error) {
	switch name {
	case "slots":
		q.Slots, err = number(value)
	case "claim_ahead":
		var ahead bool
		if err = value.Decode(&ahead); err != nil {
			err = fmt.Errorf("must be true or false, not %.50q", value.Value)
		}
		q.NoClaimAhead = !ahead
	case "key_weights":
		q.KeyWeights, err = weights(value)
	}
	return err
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
		return nil, fmt.Errorf("at most %d keys, not %d: set the others with \"jobq queues set NAME --key KEY weight=N\"", keyWeightsMax, len(weights))
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

// number is a number of at least 1.
func number(node *yaml.Node) (*int, error) {
	value, err := strconv.Atoi(node.Value)
	if err != nil || value < 1 || node.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("must be a number of at least 1, not %.50q", node.Value)
	}
	return &value, nil
}

// QueueError is an error of a queue of the file, with its line.
func (f *File) QueueError(name string, err error) error {
	return fmt.Errorf("line %d: queues: %s: %w", f.Queues[name].Line, name, err)
}
