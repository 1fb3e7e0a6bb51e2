package filter

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jobq-dev/jobq/internal/when"
)

// Parse reads a filter. The error is an *Error.
func Parse(text string) (Query, error) { return parse(text, bytesMax, termsMax) }

// ParseStored reads what String has written of a query, which can be longer
// than what was typed: it has more quotes, and terms that were added.
func ParseStored(text string) (Query, error) { return parse(text, storedBytesMax, storedTermsMax) }

func parse(text string, bytesMax, termsMax int) (Query, error) {
	if len(text) > bytesMax {
		return Query{}, &Error{bytesMax, fmt.Sprintf("longer than %d bytes", bytesMax)}
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return Query{}, &Error{0, "not text"}
	}
	p := parser{text: text}
	var query Query
	for {
		p.skipBlanks()
		if p.at >= len(p.text) {
			return query, nil
		}
		start := p.at
		term, err := p.term()
		if err != nil {
			return Query{}, err
		}
		if problem := term.check(); problem != "" {
			return Query{}, &Error{start, problem}
		}
		if query.terms = append(query.terms, term); len(query.terms) > termsMax {
			return Query{}, &Error{start, fmt.Sprintf("more than %d terms", termsMax)}
		}
	}
}

type parser struct {
	text string
	at   int
}

func (p *parser) skipBlanks() {
	for p.at < len(p.text) && isBlank(p.text[p.at]) {
		p.at++
	}
}

func isBlank(char byte) bool { return char == ' ' || char == '\t' || char == '\n' || char == '\r' }

// fieldPattern is a field with its operator, at the start of a term. An
// argument may have the operator with or without the colon.
var fieldPattern = regexp.MustCompile(`^([a-z]+)((?:\.[A-Za-z0-9_-]+)*)(:?(?:<=|>=|<|>)|:=|:|=)`)

func (p *parser) term() (Term, error) {
	term := Term{Field: "text", Op: ":"}
	start := p.at
	if p.text[p.at] == '-' || p.text[p.at] == '!' {
		term.Negated = true
		p.at++
	}
	if match := fieldPattern.FindStringSubmatch(p.text[p.at:]); match != nil {
		term.Field = match[1]
		if !isField(term.Field) {
			return term, &Error{p.at, fmt.Sprintf("no field %q; there are %s", term.Field, fieldNames())}
		}
		if match[2] != "" {
			term.Path = strings.Split(match[2][1:], ".")
		}
		if op := strings.Trim(match[3], ":"); op != "" && (op != "=" || term.Field == "err") {
			term.Op = op
		}
		p.at += len(match[0])
	}
	for {
		value, err := p.value()
		if err != nil {
			return term, err
		}
		if term.Values = append(term.Values, value); len(term.Values) > valuesMax {
			return term, &Error{start, fmt.Sprintf("more than %d values", valuesMax)}
		}
		if p.at >= len(p.text) || p.text[p.at] != ',' {
			return term, nil
		}
		p.at++
	}
}

func fieldNames() string {
	names := make([]string, 0, len(Fields()))
	for _, field := range Fields() {
		names = append(names, field.Name)
	}
	return strings.Join(names, ", ")
}

// value reads up to a comma or a blank, or a quoted text.
func (p *parser) value() (Value, error) {
	start := p.at
	if p.at < len(p.text) && p.text[p.at] == '"' {
		return p.quoted()
	}
	for p.at < len(p.text) && p.text[p.at] != ',' && !isBlank(p.text[p.at]) {
		if p.text[p.at] == '"' {
			return Value{}, &Error{p.at, "a quote in the middle of a value"}
		}
		p.at++
	}
	text := p.text[start:p.at]
	if text == "" {
		return Value{}, &Error{start, `a value is missing; "" is the empty one`}
	}
	return Value{Text: text, Wild: strings.Contains(text, "*")}, nil
}

func (p *parser) quoted() (Value, error) {
	start := p.at
	var text strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case '"':
			p.at++
			if p.at < len(p.text) && p.text[p.at] != ',' && !isBlank(p.text[p.at]) {
				return Value{}, &Error{p.at, "text right after a quote"}
			}
			return Value{Text: text.String()}, nil
		case '\\':
			p.at++
			if p.at >= len(p.text) {
				return Value{}, &Error{start, "the quote is not closed"}
			}
		}
		text.WriteByte(p.text[p.at])
	}
	return Value{}, &Error{start, "the quote is not closed"}
}

// states are those that a filter can name.
var states = []string{"waiting", "scheduled", "available", "running", "completed", "failed", "cancelled", "retrying"}

var (
	integerPattern = regexp.MustCompile(`^-?[0-9]{1,18}$`)
	decimalPattern = regexp.MustCompile(`^-?[0-9]{1,30}(\.[0-9]{1,30})?$`)
)

// check says what is wrong with the term's values, if anything.
func (t *Term) check() string {
	hasPath := t.Field == "args" || t.Field == "meta"
	switch {
	case hasPath && len(t.Path) == 0:
		return fmt.Sprintf("name the member: %s.name=value", t.Field)
	case !hasPath && len(t.Path) > 0:
		return fmt.Sprintf("%s has no members", t.Field)
	}
	isNumber := t.Field == "id" || t.Field == "attempts" || t.Field == "priority"
	if t.Op != ":" && t.Op != "=" {
		if !isNumber && !hasPath && t.Field != "age" {
			return fmt.Sprintf("%s has no order: use %s:value", t.Field, t.Field)
		}
		if len(t.Values) > 1 {
			return "one value after " + t.Op
		}
	}
	if t.Field == "age" && t.Op == ":" {
		return "age is compared: age:<2h or age:>1d"
	}
	for i := range t.Values {
		value := &t.Values[i]
		switch {
		case t.Field == "state" && !slices.Contains(states, value.Text):
			return fmt.Sprintf("no state %q; there are %s", value.Text, strings.Join(states, ", "))
		case isNumber && !integerPattern.MatchString(value.Text):
			return fmt.Sprintf("%s is a number, not %q", t.Field, value.Text)
		case t.Op != ":" && hasPath && !decimalPattern.MatchString(value.Text):
			return fmt.Sprintf("%s compares numbers, not %q", t.Op, value.Text)
		case t.Field == "age":
			if _, err := when.ParseDuration(value.Text); err != nil {
				return fmt.Sprintf("age %q: %v", value.Text, err)
			}
		}
	}
	return ""
}
