package format

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"slices"
)

// JobColumns are the columns of a list of jobs as comma-separated values, whatever
// fields its jobs have: pages of a list can be put together.
func JobColumns() []string {
	return []string{
		"id", "state", "queue", "kind", "priority", "attempts", "max_attempts", "crashes", "run_at", "created_at", "started_at", "finished_at",
		"timeout_ns", "unique_key", "partition_key", "tags", "metadata", "last_error", "clear_reason", "lease_token", "lease_owner", "lease_expires_at",
		"cancel_requested_at", "progress",
	}
}

// CSV writes JSON objects as comma-separated values: the columns, and one for each
// other field that an object has, in their order. Texts are as they are, everything
// else is JSON; show may change what is in a cell, and may be nil.
func CSV(rows []json.RawMessage, columns []string, show func(string) string) ([]byte, error) {
	header := slices.Clone(columns)
	cells := make([]map[string]string, len(rows))
	for i, row := range rows {
		names, values, err := fieldsOf(row)
		if err != nil {
			return nil, err
		}
		cells[i] = values
		for at, name := range names {
			if !slices.Contains(header, name) { // after what precedes it in this row
				header = slices.Insert(header, 1+slices.Index(header, names[max(at-1, 0)]), name)
			}
		}
	}
	table := [][]string{header}
	for _, values := range cells {
		line := make([]string, len(header))
		for i, name := range header {
			if line[i] = values[name]; show != nil {
				line[i] = show(line[i])
			}
		}
		table = append(table, line)
	}
	var content bytes.Buffer
	err := csv.NewWriter(&content).WriteAll(table)
	return content.Bytes(), err
}

// JSONLines writes JSON objects, each on a line of its own.
func JSONLines(rows []json.RawMessage) []byte {
	var content bytes.Buffer
	for _, row := range rows {
		content.Write(row)
		content.WriteByte('\n')
	}
	return content.Bytes()
}

// fieldsOf are the fields of an object, in their order.
func fieldsOf(row json.RawMessage) (names []string, values map[string]string, err error) {
	decoder := json.NewDecoder(bytes.NewReader(row))
	if _, err := decoder.Token(); err != nil { // {
		return nil, nil, err
	}
	values = make(map[string]string)
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, nil, err
		}
		text := string(value)
		if value[0] == '"' {
			if err := json.Unmarshal(value, &text); err != nil {
				return nil, nil, err
			}
		}
		names = append(names, name.(string))
		values[name.(string)] = text
	}
	return names, values, nil
}
