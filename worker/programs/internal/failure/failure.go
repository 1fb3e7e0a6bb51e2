// Package failure writes the texts of failures that happen outside of this
// process: of programs that have died, and of reasons that handlers have put into
// words.
//
// The first line of an error's text is its summary: lists show it, failures are
// grouped by it, and the log has it. What a program writes before it dies does not
// begin with a summary: a Python traceback, for instance, ends with the message. So
// the summary is put before it:
//
//	exit code 1: ValueError: bad input
//	Traceback (most recent call last):
//	  File "job.py", line 1, in <module>
//	ValueError: bad input
package failure

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/worker/internal/excerpt"
)

// tailBytes is how much of standard error, or of a server's answer, becomes a
// failure's text.
const tailBytes = 4 << 10

// tracebackBegins is how Python's tracebacks begin.
const tracebackBegins = "Traceback (most recent call last)"

// closingLine is one that interpreters write below the message: without a
// letter, or with their own version or a hint.
var closingLine = regexp.MustCompile("^[^\\pL]*$|^Node\\.js v[0-9]|^note: run with `RUST_BACKTRACE|^exit status [0-9]+$")

// OfProgram is the text for a program that has ended badly: how, and the end of
// what it has written to standard error. The prefix says which program it is.
func OfProgram(prefix string, ended subproc.Result) string {
	how := prefix + "exit code " + strconv.Itoa(ended.ExitCode)
	if ended.Signal != "" {
		how = prefix + "killed by " + ended.Signal
	}
	text := printable.Text(string(ended.Stderr))
	return withSummary(how, excerpt.End(text, tailBytes), summaryOf(text))
}

// OfAnswer is the text for a server's answer that reports a failure: how, such as
// its status, and the answer.
func OfAnswer(how string, answer []byte) string {
	return OfReason(how, excerpt.Of(printable.Text(string(answer)), tailBytes))
}

// OfReason is the text for a failure whose reason a handler has put into words.
// Their first line is the summary, unless it is a traceback's.
func OfReason(how, reason string) string {
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

// summaryOf finds the line that says what went wrong in what a program has written before
// its death. It is the last line that is neither indented nor a closing line of a stack
// trace. If a Go program has panicked, it is the line with the panic.
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
	return excerpt.Of(last, tailBytes)
}
