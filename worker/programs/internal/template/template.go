// Package template puts parts of a job into the words of a command.
package template

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Expand puts parts of the job in place of ${args.NAME}, ${args.NAME.NAME} and
// ${job.NAME} in the words. A word stays one word whatever is put into it, and no
// shell sees it. Anything else after a dollar stays as it is, for the program's
// own use. An error says that the job lacks what a word names.
func Expand(words []string, args json.RawMessage, job map[string]any) ([]string, error) {
	var values map[string]any // decoded when first needed
	expanded := make([]string, len(words))
	for i, word := range words {
		if !strings.Contains(word, "${") {
			expanded[i] = word
			continue
		}
		if values == nil {
			var decoded any
			decoder := json.NewDecoder(strings.NewReader(string(args)))
			decoder.UseNumber() // a large id must not become 1e+18
			if err := decoder.Decode(&decoded); err != nil {
				return nil, fmt.Errorf("decode args: %w", err)
			}
			values = map[string]any{"args": decoded, "job": job}
		}
		var err error
		if expanded[i], err = expandWord(word, values); err != nil {
			return nil, err
		}
	}
	return expanded, nil
}

func expandWord(word string, values map[string]any) (string, error) {
	var done strings.Builder
	for {
		before, rest, found := strings.Cut(word, "${")
		done.WriteString(before)
		if !found {
			return done.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || (!strings.HasPrefix(name, "args.") && !strings.HasPrefix(name, "job.")) {
			done.WriteString("${")
			word = rest
			continue
		}
		text, err := lookUp(name, values)
		if err != nil {
			return "", err
		}
		done.WriteString(text)
		word = after
	}
}

// lookUp returns the value as text: strings as they are, others as JSON.
func lookUp(name string, values map[string]any) (string, error) {
	var value any = values
	for part := range strings.SplitSeq(name, ".") {
		object, ok := value.(map[string]any)
		if value, ok = object[part], ok && object[part] != nil; !ok {
			return "", fmt.Errorf("the command needs %s, which the job does not have", name)
		}
	}
	text, ok := value.(string)
	if !ok {
		encoded, err := json.Marshal(value)
		if err != nil {
			return "", err
		}
		text = string(encoded)
	}
	if strings.ContainsRune(text, 0) {
		return "", fmt.Errorf("%s has a NUL character, which no argument can hold", name)
	}
	return text, nil
}
