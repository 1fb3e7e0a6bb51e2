// Package filter is the one grammar in which people say which jobs they mean:
// in `jobq list`, in bulk actions, and in the terminal UI.
//
//	state:failed queue:email,sms kind:Send* -tag:test err:"smtp 421" age:<2h args.tenant=4411
//
// Terms are separated by blanks and must all hold; values separated by commas
// are alternatives; `*` stands for any text; `-` or `!` in front means "not"; quotes
// keep blanks, commas and stars as they are. A bare number is a job's id, and
// any other bare word is looked for in kind, queue and last error.
package filter

import (
	"fmt"
	"slices"
	"strings"
)

// Limits on what is accepted: a filter is typed by a person.
const (
	bytesMax  = 4096
	termsMax  = 32
	valuesMax = 1000
	// The audit stores at most 8192 characters, of up to four bytes each, and a
	// caller may have added a term for each field of a jobq.Filter.
	storedBytesMax = 4 * 8192
	storedTermsMax = termsMax + 8
)

// Query is a filter that has been understood. The zero value means all jobs.
type Query struct{ terms []Term }

// Term is one condition.
type Term struct {
	Field   string // one of Fields, or "text" for a bare word
	Path    []string
	Op      string // ":" (equal, like, contains), "<", "<=", ">", ">="; "=" of err
	Values  []Value
	Negated bool
}

// Value is one alternative. In Text a star that was not quoted is a wildcard,
// which Wild tells.
type Value struct {
	Text string
	Wild bool
}

// Error says what is wrong with a filter, and where.
type Error struct {
	At      int // byte offset
	Problem string
}

func (e *Error) Error() string { return fmt.Sprintf("filter, character %d: %s", e.At+1, e.Problem) }

// Field is a field that terms can name, for help and completion.
type Field struct{ Name, Help string }

// Fields are all of them.
func Fields() []Field {
	return []Field{
		{"state", "waiting, scheduled, available, running, completed, failed, cancelled; retrying = scheduled again after a failure"},
		{"queue", "queue:email, queue:em*"},
		{"kind", "kind:SendInvoice, kind:Send*"},
		{"tag", "tag:eu"},
		{"err", `part of the last error: err:"smtp 421"; err:="user #: no mailbox": the pattern of its group in jobq errors`},
		{"age", "since it ended, else since it was created: age:<2h, age:>1d"},
		{"id", "id:4711,4712 id:>4000"},
		{"attempts", "runs that ended badly: attempts:>=3"},
		{"priority", "priority:<0"},
		{"worker", "who holds or held the lease: worker:web-1*"},
		{"key", "unique key: key:invoice-*"},
		{"partition", "partition key: partition:customer-17"},
		{"args", `a member of args: args.tenant=4411, args.user.name="Ann Lee", args.size>1000`},
		{"meta", "a member of metadata: meta.trace=9f1c"},
	}
}

func isField(name string) bool {
	return slices.ContainsFunc(Fields(), func(f Field) bool { return f.Name == name })
}

// And returns the query with further terms.
func (q Query) And(terms ...Term) Query {
	return Query{terms: append(slices.Clone(q.terms), terms...)}
}

// Equal is a term that wants the field to be one of the values, exactly.
func Equal(field string, values ...string) Term {
	term := Term{Field: field, Op: ":"}
	for _, value := range values {
		term.Values = append(term.Values, Value{Text: value})
	}
	return term
}

// Reason is a term that wants the last error to have this pattern: a group of
// failures.
func Reason(pattern string) Term {
	return Term{Field: "err", Op: "=", Values: []Value{{Text: pattern}}}
}

// Without returns the query without the terms of a field.
func (q Query) Without(field string) Query {
	return Query{terms: slices.DeleteFunc(slices.Clone(q.terms), func(t Term) bool { return t.Field == field })}
}

// IsEmpty says whether the query means all jobs.
func (q Query) IsEmpty() bool { return len(q.terms) == 0 }

// String is the query as Parse reads it.
func (q Query) String() string {
	parts := make([]string, len(q.terms))
	for i, term := range q.terms {
		parts[i] = term.String()
	}
	return strings.Join(parts, " ")
}

func (t Term) String() string {
	var b strings.Builder
	if t.Negated {
		b.WriteByte('-')
	}
	if t.Field != "text" {
		b.WriteString(strings.Join(append([]string{t.Field}, t.Path...), "."))
		b.WriteByte(':')
		if t.Op != ":" {
			b.WriteString(t.Op)
		}
	}
	for i, value := range t.Values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(value.quoted())
	}
	return b.String()
}

// quoted is the value, in quotes unless it reads the same without.
func (v Value) quoted() string {
	plain := v.Text != "" && !strings.ContainsAny(v.Text, " \t\n\r,\"\\:=<>!-") && isPrintableASCII(v.Text)
	if v.Wild || plain && !strings.Contains(v.Text, "*") {
		return v.Text
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v.Text) + `"`
}

func isPrintableASCII(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
