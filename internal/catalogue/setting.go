// Package catalogue has each setting of a queue and of a kind once: how it is called, read and written, and what it is for.
// The command line, jobq.yaml, the terminal UI and the reference are made of it.
package catalogue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Setting is a setting: Change is what changes it, among others, and Stored has what is stored.
type Setting[Change, Stored any] struct {
	// Name is what it is called wherever people write it.
	Name string
	// Takes says which values it has, and Help what it does.
	Takes, Help string

	set       func(change *Change, text string) error
	text      func(stored *Stored) string
	isDefault func(stored *Stored) bool
}

// Text is the value that is stored, as it is written.
func (s *Setting[Change, Stored]) Text(stored *Stored) string { return s.text(stored) }

// IsDefault says whether the value that is stored is what there is when nobody has set any.
func (s *Setting[Change, Stored]) IsDefault(stored *Stored) bool { return s.isDefault(stored) }

// SettingError is what is wrong with a setting, or with its value.
type SettingError struct {
	Name string
	Err  error
}

func (e *SettingError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap is what is wrong.
func (e *SettingError) Unwrap() error { return e.Err }

// setting is one whose value is one member of a change.
func setting[T comparable, Change, Stored any](name, help string, takes values[T], member func(*Change) **T, stored, byDefault func(*Stored) T) Setting[Change, Stored] {
	return Setting[Change, Stored]{
		Name: name, Takes: takes.says, Help: help,
		set: func(c *Change, text string) error {
			value, err := takes.parse(text)
			*member(c) = &value
			return err
		},
		text:      func(s *Stored) string { return takes.format(stored(s)) },
		isDefault: func(s *Stored) bool { return stored(s) == byDefault(s) },
	}
}

// read reads values by the names of their settings, which are those of a queue or a kind.
func read[Change, Stored any](of string, settings []Setting[Change, Stored], values map[string]string) (change Change, err error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, known := named(settings, name); !known {
			return change, &SettingError{name, fmt.Errorf("not known: a %s has %s", of, strings.Join(names(settings), ", "))}
		}
	}
	for _, s := range settings { // in their order: a burst follows its rate
		if text, given := values[s.Name]; given {
			if err := s.set(&change, text); err != nil {
				return change, &SettingError{s.Name, err}
			}
		}
	}
	return change, nil
}

func names[Change, Stored any](settings []Setting[Change, Stored]) (names []string) {
	for _, s := range settings {
		names = append(names, s.Name)
	}
	return names
}

func named[Change, Stored any](settings []Setting[Change, Stored], name string) (Setting[Change, Stored], bool) {
	at := slices.IndexFunc(settings, func(s Setting[Change, Stored]) bool { return s.Name == name })
	if at < 0 {
		return Setting[Change, Stored]{}, false
	}
	return settings[at], true
}

// changed are the settings that are not as by default, such as "limit=3 rate=100/s".
func changed[Change, Stored any](settings []Setting[Change, Stored], stored *Stored) string {
	var set []string
	for _, s := range settings {
		if !s.isDefault(stored) {
			set = append(set, s.Name+"="+s.text(stored))
		}
	}
	return strings.Join(set, " ")
}
