package worker

import (
	"regexp"
	"strings"

	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/worker/internal/excerpt"
)

// The first line of an error's text is its summary: what lists show, failures
// are grouped by, and the log has. A program's last words are not made like
// that: a Python traceback, for instance, ends with the message. So what a
// program says is kept with its summary before it:
//
//	exit code 1: ValueError: bad input
//	Traceback (most recent call last):
//	  File "job.py", line 1, in <module>
//	ValueError: bad input

// errorTailBytes is how much of standard error, or of a server's answer,
// becomes a failure's text.
const errorTailBytes = 4 << 10

// tracebackBegins is how Python's tracebacks begin.
const tracebackBegins = "Traceback (most recent call last)"

// closingLine is one that interpreters write below the message: without a
// letter, or with their own version or a hint.
var closingLine = regexp.MustCompile("^[^\\pL]*$|^Node\\.js v[0-9]|^note: run with `RUST_BACKTRACE|^exit status [0-9]+$")

// lastWords is the text of a failure: how it happened, and what the program has
// written to standard error before.
func lastWords(how string, stderr []byte) string {
	text := printable.Text(string(stderr))
	return withSummary(how, excerpt.End(text, errorTailBytes), summaryOf(text))
}

// withReason is the text of a failure whose reason a handler has put into words.
// Their first line is the summary, unless it is a traceback's.
func withReason(how, reason string) string {
	reason = excerpt.Of(strings.TrimSpace(reason), excerpt.ErrorBytesMax)
	if strings.HasPrefix(reason, tracebackBegins) {
		return withSummary(how, reason, summaryOf(reason))
	}
	return withSummary(how, reason, "")
}

// withSummary puts how it happened and the summary before the text, which has
// it already when that begins with it.
func withSummary(how, text, summary string) string {
	text = strings.TrimSpace(text)
	switch {
	case how != "" && text != "":
		how += ": "
	case text == "":
		return how
	}
	if strings.HasPrefix(text, summary) {
		return how + text
	}
	return how + summary + "\n" + text
}

// summaryOf is the line of a program's last words that says what went wrong: the
// last one, but for the indented lines and closing lines of stack traces; of a
// Go program that has panicked, the panic.
func summaryOf(text string) string {
	var last string
	isGo := strings.Contains(text, "\ngoroutine ")
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case isGo && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")):
			return line
		case line != "" && line[0] != ' ' && line[0] != '\t' && !closingLine.MatchString(line):
			last = line
		}
	}
	if last == "" { // all of it is indented, or numbers
		text = strings.TrimSpace(text)
		last = strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	}
	return excerpt.Of(last, errorTailBytes)
}
