package worker

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// expand puts parts of the job in place of ${args.NAME}, ${args.NAME.NAME} and
// ${job.NAME} in the words of a command. A word stays one word whatever is put
// into it, and no shell sees it. Anything else after a dollar stays as it is,
// for the program's own use.
func (r *Run) expand(words []string) ([]string, error) {
	var args map[string]any // decoded when first needed
	expanded := make([]string, len(words))
	for i, word := range words {
		if !strings.Contains(word, "${") {
			expanded[i] = word
			continue
		}
		if args == nil {
			args = map[string]any{}
			decoder := json.NewDecoder(strings.NewReader(string(r.row.Args)))
			decoder.UseNumber() // a large id must not become 1e+18
			var value any
			if err := decoder.Decode(&value); err != nil {
				return nil, fmt.Errorf("decode args: %w", err)
			}
			args["args"] = value
			args["job"] = map[string]any{
				"id": json.Number(strconv.FormatInt(r.row.ID, 10)), "kind": r.row.Kind, "queue": r.row.Queue,
				"attempt": json.Number(strconv.Itoa(r.Attempt())), "lease_token": json.Number(strconv.FormatInt(r.row.LeaseToken, 10)),
			}
		}
		var err error
		if expanded[i], err = expandWord(word, args); err != nil {
			return nil, Discard(err) // the args are wrong, and will be next time
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
