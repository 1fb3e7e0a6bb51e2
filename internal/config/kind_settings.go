package config

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/jobq-dev/jobq/internal/catalogue"
	"github.com/jobq-dev/jobq/operator"
)

// KindSettings is what the file says of the settings of a kind in the database. What it does not name keeps what is stored.
type KindSettings struct {
	Change operator.KindChange
	// Line is where they begin in the file.
	Line int
}

// UnmarshalYAML reads them.
func (s *KindSettings) UnmarshalYAML(node *yaml.Node) error {
	s.Line = node.Line
	var members map[string]yaml.Node
	if err := node.Decode(&members); err != nil {
		return err
	}
	values := make(map[string]string, len(members))
	for name, value := range members {
		if value.Kind != yaml.ScalarNode || value.ShortTag() == "!!null" {
			return fmt.Errorf("line %d: %s: must be a single value, in quotes if YAML gives it another meaning, such as \"#\"", value.Line, name)
		}
		values[name] = value.Value
	}
	var err error
	s.Change, err = catalogue.KindChange(values)
	if wrong := (*catalogue.SettingError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("line %d: settings: %w", members[wrong.Name].Line, err)
	}
	return err
}

// KindError is an error of the settings of a kind of the file, with their line.
func (f *File) KindError(name string, err error) error {
	return fmt.Errorf("line %d: kinds: %s: settings: %w", f.Kinds[name].Settings.Line, name, err)
}
