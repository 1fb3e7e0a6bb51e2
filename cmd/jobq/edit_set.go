package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// setFlag is members of args, as a JSON merge patch of them: args.dt=0.01 and args.model.depth=3 are
// {"dt": 0.01, "model": {"depth": 3}}.
type setFlag struct {
	members map[string]any // each a map like this, or json.RawMessage
	texts   []string
}

// Set adds a member.
func (f *setFlag) Set(text string) error {
	if text == "" {
		return nil // refuseEmpty says so
	}
	path, value, hasValue := strings.Cut(text, "=")
	path, isArgs := strings.CutPrefix(path, "args.")
	names := strings.Split(path, ".")
	switch {
	case !isArgs || !hasValue:
		return errors.New("must be args.NAME=VALUE, such as args.dt=0.01")
	case strings.Contains("."+path+".", ".."):
		return errors.New("a name is empty")
	}
	if f.members == nil {
		f.members = make(map[string]any)
	}
	f.texts = append(f.texts, text)
	return put(f.members, names, memberValue(value))
}

// memberValue is a value as JSON: itself if it is JSON, such as 0.01, true, null and "007", else a text.
func memberValue(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	value, _ := json.Marshal(text) // a text always encodes
	return value
}

// put sets the member that the path leads to.
func put(members map[string]any, path []string, value json.RawMessage) error {
	inner, isInner := members[path[0]].(map[string]any)
	switch _, isSet := members[path[0]]; {
	case isSet && isInner == (len(path) == 1):
		return fmt.Errorf("args.%s is set, and members of it", path[0])
	case len(path) == 1:
		members[path[0]] = value
		return nil
	case !isInner:
		inner = make(map[string]any)
		members[path[0]] = inner
	}
	return put(inner, path[1:], value)
}

// patch is all members, nil for none.
func (f *setFlag) patch() json.RawMessage {
	if f.members == nil {
		return nil
	}
	patch, _ := json.Marshal(f.members) // the values are JSON
	return patch
}

func (f *setFlag) String() string { return strings.Join(f.texts, " ") }

// Type names the value in the help.
func (f *setFlag) Type() string { return "args.NAME=VALUE" }
