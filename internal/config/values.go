package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/internal/when"
)

// Duration is a time such as 90s, 1h30m or 2d.
type Duration time.Duration

// UnmarshalYAML reads it. A number without a unit is refused: of what?
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	duration, err := when.ParseDuration(node.Value)
	if err == nil && node.Kind != yaml.ScalarNode {
		err = errors.New("it must be one value")
	}
	if err != nil {
		return fmt.Errorf("line %d: duration %q: %w", node.Line, node.Value, err)
	}
	*d = Duration(duration)
	return nil
}

// Size is a count, or a size such as 512MiB.
type Size uint64

// UnmarshalYAML reads it.
func (s *Size) UnmarshalYAML(node *yaml.Node) error {
	number, shift := node.Value, 0
	for unit, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40} {
		if digits, ok := strings.CutSuffix(node.Value, unit); ok {
			number, shift = strings.TrimSpace(digits), bits
		}
	}
	value, err := strconv.ParseUint(number, 10, 64)
	if err != nil || node.Kind != yaml.ScalarNode || value > (1<<63)>>shift {
		return fmt.Errorf("line %d: %q must be a number or a size such as 512MiB", node.Line, node.Value)
	}
	*s = Size(value << shift)
	return nil
}

// Words are a command: a list of words, or one text that is cut as a shell
// cuts it, with nothing expanded.
type Words []string

// UnmarshalYAML reads them.
func (w *Words) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.SequenceNode {
		return node.Decode((*[]string)(w))
	}
	words, err := subproc.Split(node.Value)
	if err != nil || node.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: %q must be a command, or a list of its words: %w", node.Line, node.Value, err)
	}
	*w = words
	return nil
}
