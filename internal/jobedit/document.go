// Package jobedit is how a person edits a job as a text: the document, the
// editor that it is opened in, and what was changed.
package jobedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/operator"
)

// problemMark begins the lines that say what was wrong with the text.
const problemMark = "#! "

// Heading says what a document is about and what to do with it.
func Heading(job *jobq.Job) []string {
	return []string{
		string(escaped(fmt.Appendf(nil, "Job %d, kind %q, %s. Change what you like, save, and leave the editor.", job.ID, job.Kind, job.State))),
		"Lines that begin with # are not read. Leave all as it is, or empty, and nothing is done.",
	}
}

// Document is what can be changed of the job, as JSON that has comments: lines
// that begin with #. Numbers stay as they are written in the database, and no
// character can drive the terminal: such ones are escaped, as JSON has it.
func Document(job *jobq.Job, heading ...string) []byte {
	var text bytes.Buffer
	for _, line := range heading {
		fmt.Fprintf(&text, "# %s\n", line)
	}
	tags := job.Tags
	if tags == nil {
		tags = []string{}
	}
	text.WriteString("{\n")
	for _, field := range []struct {
		name  string
		value any
	}{
		{"queue", job.Queue},
		{"priority", job.Priority},
		{"run_at", job.RunAt},
		{"max_attempts", job.MaxAttempts},
		{"tags", tags},
		{"metadata", job.Metadata},
		{"args", job.Args},
	} {
		fmt.Fprintf(&text, "  %q: %s", field.name, indented(field.value))
		if field.name != "args" {
			text.WriteByte(',')
		}
		text.WriteByte('\n')
	}
	text.WriteString("}\n")
	return text.Bytes()
}

// indented is a value as JSON for people. The values of a job always encode.
func indented(value any) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if raw, ok := value.(json.RawMessage); ok && raw != nil {
		if err := json.Indent(&text, raw, "  ", "  "); err != nil {
			return raw
		}
	} else if err := encoder.Encode(value); err != nil {
		return []byte("null")
	}
	return escaped(bytes.TrimSpace(text.Bytes()))
}

// escaped replaces what a terminal might obey. Outside of strings JSON has no
// such characters.
func escaped(text []byte) []byte {
	var safe bytes.Buffer
	for _, char := range string(text) {
		if char > '~' && (unicode.IsControl(char) || unicode.Is(unicode.Bidi_Control, char) || char == '\u2028' || char == '\u2029') {
			fmt.Fprintf(&safe, `\u%04x`, char)
			continue
		}
		safe.WriteRune(char)
	}
	return safe.Bytes()
}

// WithProblem puts what is wrong at the top of the text, in place of what was
// wrong before.
func WithProblem(content []byte, problem string) []byte {
	return append([]byte(problemMark+strings.ReplaceAll(problem, "\n", " ")+"\n"), WithoutProblem(content)...)
}

// WithoutProblem is the text as the operator has left it.
func WithoutProblem(content []byte) []byte {
	lines := slices.DeleteFunc(strings.SplitAfter(string(content), "\n"), func(line string) bool { return strings.HasPrefix(line, problemMark) })
	return []byte(strings.Join(lines, ""))
}

// Changes reads what has become of the job's document: the fields that are not
// as the job has them. A text without any JSON changes nothing.
func Changes(content []byte, job *jobq.Job) (operator.JobChange, error) {
	wanted, err := parse(content)
	if err != nil {
		return operator.JobChange{}, err
	}
	var change operator.JobChange
	if wanted.Queue != nil && *wanted.Queue != job.Queue {
		change.Queue = wanted.Queue
	}
	if wanted.Priority != nil && *wanted.Priority != job.Priority {
		change.Priority = wanted.Priority
	}
	if wanted.RunAt != nil && !wanted.RunAt.Equal(job.RunAt) {
		change.RunAt = wanted.RunAt
	}
	if wanted.MaxAttempts != nil && *wanted.MaxAttempts != job.MaxAttempts {
		change.MaxAttempts = wanted.MaxAttempts
	}
	if wanted.Tags != nil && !slices.Equal(*wanted.Tags, job.Tags) {
		change.Tags = wanted.Tags
	}
	if wanted.Metadata != nil && !sameJSON(wanted.Metadata, job.Metadata) {
		change.Metadata = wanted.Metadata
	}
	if wanted.Args != nil && !sameJSON(wanted.Args, job.Args) {
		change.Args = wanted.Args
	}
	return change, nil
}

// document is a change as people write it: the time as on the command line.
type document struct {
	operator.JobChange
	RunAt *moment `json:"run_at"` // hides that of the change
}

// moment is a time such as "tomorrow 09:00".
type moment time.Time

// momentError is about a text that is none.
type momentError struct{ error }

// UnmarshalJSON reads it.
func (m *moment) UnmarshalJSON(content []byte) error {
	var text string
	if err := json.Unmarshal(content, &text); err != nil {
		return momentError{errors.New("a time must be a text, such as \"2026-12-31T23:59:00Z\"")}
	}
	at, _, err := when.Parse(text, time.Now())
	if err != nil {
		return momentError{err}
	}
	*m = moment(at)
	return nil
}

// parse reads a document. Its errors name the line, or the field.
func parse(content []byte) (operator.JobChange, error) {
	var wanted operator.JobChange
	lines := strings.SplitAfter(string(content), "\n")
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			lines[i] = "\n" // lines keep their numbers
		}
	}
	text := strings.Join(lines, "")
	if strings.TrimSpace(text) == "" {
		return wanted, nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	var typed document
	if err := decoder.Decode(&typed); err != nil {
		return wanted, problemOf(err, text)
	}
	wanted = typed.JobChange
	wanted.RunAt = (*time.Time)(typed.RunAt)
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return wanted, fmt.Errorf("line %d: there is more after the end of the object", lineAt(text, decoder.InputOffset()))
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return wanted, problemOf(err, text)
	}
	for _, name := range []string{"queue", "priority", "run_at", "max_attempts"} {
		if string(given[name]) == "null" {
			return wanted, fmt.Errorf("%s must not be null", name)
		}
	}
	if string(given["tags"]) == "null" {
		wanted.Tags = &[]string{}
	}
	return wanted, nil
}

// problemOf says in the document's words what the decoder said.
func problemOf(err error, text string) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var notTime momentError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: %w", lineAt(text, syntax.Offset), syntax)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the text ends in the middle: a bracket is not closed")
	case errors.As(err, &notTime):
		return fmt.Errorf("run_at: %w", notTime.error)
	case errors.As(err, &kind):
		field := strings.TrimPrefix(kind.Field, "JobChange.") // the path through the struct
		wants := map[string]string{
			"priority": "a whole number from -32768 to 32767", "max_attempts": "a whole number from 1 to 32767", "queue": "a text", "tags": "a list of texts",
			"": "an object",
		}[field]
		if field == "" {
			field = "the document"
		}
		return fmt.Errorf("line %d: %s must be %s, not %s", lineAt(text, kind.Offset), field, wants, kind.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

func lineAt(text string, offset int64) int {
	return 1 + strings.Count(text[:min(max(offset-1, 0), int64(len(text)))], "\n")
}

// sameJSON says whether two texts are the same but for blanks and escapes. No
// text is null.
func sameJSON(a, b json.RawMessage) bool { return compact(a) == compact(b) }

func compact(raw json.RawMessage) string {
	if raw == nil {
		return "null"
	}
	var text bytes.Buffer
	if err := json.Compact(&text, raw); err != nil {
		return string(raw)
	}
	return string(escaped(text.Bytes()))
}
