package config

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
)

const (
	// valueBytesMax bounds the JSON of a value: aliases can make a small file into a large value.
	valueBytesMax = 1 << 20
	// valueDepthMax bounds how deep it is nested.
	valueDepthMax = 64
)

// Value is a value of the file as JSON; nil for none. Numbers keep their digits, and what is no number of JSON
// is an error: YAML would take 01234 for 668. A date stays its text.
type Value json.RawMessage

// UnmarshalYAML reads it.
func (v *Value) UnmarshalYAML(node *yaml.Node) error {
	var out bytes.Buffer
	if err := writeJSON(&out, node, valueDepthMax); err != nil {
		return err
	}
	if out.String() != "null" {
		*v = out.Bytes()
	}
	return nil
}

// writeJSON writes a node and what is in it.
func writeJSON(out *bytes.Buffer, node *yaml.Node, depth int) error {
	at := func(problem string) error { return fmt.Errorf("line %d: %s", node.Line, problem) }
	if depth == 0 {
		return at(fmt.Sprintf("it is nested more than %d deep", valueDepthMax))
	}
	if out.Len() > valueBytesMax {
		return at(fmt.Sprintf("as JSON it is longer than %d bytes", valueBytesMax))
	}
	switch node.Kind {
	case yaml.AliasNode:
		return writeJSON(out, node.Alias, depth-1)
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range node.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeJSON(out, item, depth-1); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	case yaml.MappingNode:
		return writeObject(out, node, depth)
	default:
		text, err := scalar(node)
		if err != nil {
			return at(err.Error())
		}
		out.Write(text)
	}
	return nil
}

func writeObject(out *bytes.Buffer, node *yaml.Node, depth int) error {
	seen := make(map[string]bool, len(node.Content)/2)
	out.WriteByte('{')
	for i := 0; i+1 < len(node.Content); i += 2 {
		name := node.Content[i]
		if name.Kind == yaml.AliasNode {
			name = name.Alias
		}
		switch tag := name.ShortTag(); {
		case name.Kind != yaml.ScalarNode || tag != "!!str" && tag != "!!timestamp" && tag != "!!merge":
			return fmt.Errorf(`line %d: JSON has only texts as keys: put others in quotes, such as "1"`, node.Content[i].Line)
		case tag == "!!merge":
			return fmt.Errorf("line %d: << is not supported here: name an anchor as a whole value, or write the keys", name.Line)
		case seen[name.Value]:
			return fmt.Errorf("line %d: the key %q is there twice", name.Line, name.Value)
		}
		seen[name.Value] = true
		if i > 0 {
			out.WriteByte(',')
		}
		text, err := json.Marshal(name.Value)
		if err != nil {
			return fmt.Errorf("line %d: %w", name.Line, err)
		}
		out.Write(text)
		out.WriteByte(':')
		if err := writeJSON(out, node.Content[i+1], depth-1); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// scalar is a text, a number, a boolean or null as JSON.
func scalar(node *yaml.Node) (json.RawMessage, error) {
	switch tag := node.ShortTag(); tag {
	case "!!null":
		return json.RawMessage("null"), nil
	case "!!bool":
		var value bool
		if err := node.Decode(&value); err != nil {
			return nil, err
		}
		return json.Marshal(value)
	case "!!str", "!!timestamp":
		if node.Style == 0 && tag == "!!str" && isNumber(node.Value) { // such as 1e400, which YAML takes for a text
			return json.RawMessage(node.Value), nil
		}
		return json.Marshal(node.Value)
	case "!!int", "!!float":
		if isNumber(node.Value) {
			return json.RawMessage(node.Value), nil
		}
		return nil, fmt.Errorf("%.40q is not a number as JSON writes it (no leading zeros, no infinity): put it in quotes if it is a text", node.Value)
	default:
		return nil, fmt.Errorf("JSON has no values of type %.40q", tag)
	}
}

// isNumber says whether the text is a number as JSON writes it.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text))
}
