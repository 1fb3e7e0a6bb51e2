package tui

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/theme"
)

// withKeys is the registry with the operator's own keys. A command that does
// not exist is a mistake, and so is a key that would mean two things on one
// screen: it would do what nobody expects.
func withKeys(registry []*command, keys map[string][]string) ([]*command, error) {
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		at := slices.IndexFunc(registry, func(c *command) bool { return c.id == id })
		if at < 0 {
			return nil, fmt.Errorf("%w: keys: no command %q for %q; docs/keys.md lists them", ErrInvalid, id, strings.Join(keys[id], " "))
		}
		if len(keys[id]) == 0 || slices.Contains(keys[id], "") {
			return nil, fmt.Errorf("%w: keys: %s: a key is missing", ErrInvalid, id)
		}
		if slices.Contains(keys[id], "ctrl+c") {
			return nil, fmt.Errorf("%w: keys: %s: ctrl+c always quits", ErrInvalid, id)
		}
		registry[at].keys = keys[id]
	}
	return registry, checkKeys(registry)
}

// checkKeys refuses a key that two commands of one screen have.
func checkKeys(registry []*command) error {
	for _, name := range screen.Names() {
		owner := make(map[string]string)
		for _, c := range registry {
			if !c.on(name) {
				continue
			}
			for _, key := range c.keys {
				if owner[key] != "" {
					return fmt.Errorf("%w: keys: %q is %s and %s", ErrInvalid, key, owner[key], c.id)
				}
				owner[key] = c.id
			}
		}
	}
	return nil
}

// keyOf is the key of a command as the operator has it, for texts that name
// one: its first or, in plain mode, the first that is no row's number. A command
// without one goes by its id, which plain mode takes as well.
func (e *env) keyOf(id string) string {
	for _, c := range e.commands {
		if c.id != id {
			continue
		}
		keys := c.keys
		if e.plain {
			keys = c.plainKeys()
		}
		if len(keys) > 0 {
			return keys[0]
		}
	}
	return id
}

// setTheme changes the colours at once. auto asks the terminal again.
func (m *Model) setTheme(name string) tea.Cmd {
	m.look.style.Name = name
	m.restyle()
	if name == "" || name == theme.Auto {
		return tea.RequestBackgroundColor
	}
	return nil
}
