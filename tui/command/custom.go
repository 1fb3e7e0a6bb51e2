package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// WithKeys is the registry with the operator's own keys. A command that does
// not exist is a mistake, and so is a key that would mean two things on one
// screen: it would do what nobody expects.
func WithKeys(keys map[string][]string) (Registry, error) {
	registry := All()
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		c := registry.Find(id)
		if c == nil {
			return nil, fmt.Errorf("no command %q for %q; docs/tui-keys.md lists them", id, strings.Join(keys[id], " "))
		}
		if len(keys[id]) == 0 || slices.Contains(keys[id], "") {
			return nil, fmt.Errorf("%s: a key is missing", id)
		}
		if slices.Contains(keys[id], Interrupt) {
			return nil, fmt.Errorf("%s: %s always quits", id, Interrupt)
		}
		c.Keys = keys[id]
	}
	return registry, registry.check()
}

// check refuses a key that two commands of one screen have.
func (r Registry) check() error {
	for _, screen := range append(slices.Clone(notOnJob), Job) {
		owner := make(map[string]string)
		for _, c := range r {
			if !c.On(screen) {
				continue
			}
			for _, key := range c.Keys {
				if owner[key] != "" {
					return fmt.Errorf("%q is %s and %s", key, owner[key], c.ID)
				}
				owner[key] = c.ID
			}
		}
	}
	return nil
}
