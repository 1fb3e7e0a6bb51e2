package format

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jobq-dev/jobq"
)

// JobColumns are the columns of a list of jobs as comma-separated values, whatever
// fields its jobs have: pages of a list can be put together.
func JobColumns() []string {
	return []string{
		"id", "state", "queue", "kind", "priority", "attempts", "max_attempts", "crashes", "lost", "max_lost", "run_at", "created_at", "started_at", "finished_at",
		"timeout_ns", "unique_key", "partition_key", "tags", "metadata", "last_error", "clear_reason", "lease_token", "lease_owner", "lease_expires_at",
		"cancel_requested_at", "progress",
	}
}

// jobValues are columns that a list loads on demand only.
func jobValues() []string { return []string{"args", "checkpoint", "result"} }

// hasMembers says whether a column is JSON, whose members can be columns.
func hasMembers(column string) bool {
	return slices.Contains(jobValues(), column) || column == "metadata" || column == "progress"
}

// CheckJobColumns refuses a column that no job has, and names those that there are.
func CheckJobColumns(columns []string) error {
	known := slices.Concat(JobColumns(), jobValues())
	for _, column := range columns {
		name, member, isMember := strings.Cut(column, ".")
		if isMember && member != "" && hasMembers(name) || slices.Contains(known, column) {
			continue
		}
		return fmt.Errorf("no column %q: the columns are %s, and members such as args.dt, result.loss.mean and metadata.by", column, strings.Join(known, ", "))
	}
	return nil
}

// NeedsValues says whether a column is of args, checkpoint or result.
func NeedsValues(columns []string) bool {
	return slices.ContainsFunc(columns, func(column string) bool {
		name, _, _ := strings.Cut(column, ".")
		return slices.Contains(jobValues(), name)
	})
}

// JobCells are a job's cells in these columns, as they are in CSV. args.a.b is the member "a.b" of args, else the member
// b of the object a. What the job does not have, or is null in it, is empty.
func JobCells(job *jobq.Job, columns []string) ([]string, error) {
	row, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	fields := membersOf(row)
	cells := make([]string, len(columns))
	for i, column := range columns {
		if cells[i], err = cellOf(memberOf(fields, column)); err != nil {
			return nil, err
		}
	}
	return cells, nil
}

// memberOf is the member that the path leads to, nil for none.
func memberOf(members map[string]json.RawMessage, path string) json.RawMessage {
	if value, has := members[path]; has {
		return value
	}
	name, rest, isPath := strings.Cut(path, ".")
	if !isPath {
		return nil
	}
	return memberOf(membersOf(members[name]), rest)
}

// membersOf are those of an object; none of anything else.
func membersOf(value json.RawMessage) (members map[string]json.RawMessage) {
	if json.Unmarshal(value, &members) != nil {
		return nil
	}
	return members
}

// cellOf is a value as a cell: a text as it is, everything else as JSON.
func cellOf(value json.RawMessage) (string, error) {
	switch {
	case value == nil || string(value) == "null":
		return "", nil
	case value[0] != '"':
		return string(value), nil
	}
	var text string
	err := json.Unmarshal(value, &text)
	return text, err
}

// CSVRows writes comma-separated values row by row.
type CSVRows struct{ writer *csv.Writer }

// NewCSVRows writes to out.
func NewCSVRows(out io.Writer) CSVRows { return CSVRows{csv.NewWriter(out)} }

// Row writes one; Flush says whether that worked.
func (r CSVRows) Row(cells []string) { _ = r.writer.Write(cells) }

// Flush writes what is buffered.
func (r CSVRows) Flush() error {
	r.writer.Flush()
	return r.writer.Error()
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
