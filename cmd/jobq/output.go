package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
)

// writeJSON writes a value for programs: indented, for people who look on.
func writeJSON(out io.Writer, value any) error { return encodeJSON(out, value, "  ") }

// writeLine writes a value as one line of JSON.
func writeLine(out io.Writer, value any) error { return encodeJSON(out, value, "") }

// encodeJSON is the only way to write JSON: on a terminal, nothing in it may be
// a command to that. A file has what is stored.
func encodeJSON(out io.Writer, value any, indent string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	content := text.Bytes()
	if isTerminal(out) {
		content = printable.JSON(content)
	}
	_, err := out.Write(content)
	return err
}

// table writes rows in columns. Cells are made safe to show.
type table struct{ writer *tabwriter.Writer }

func newTable(out io.Writer, header ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.row(header...)
	return t
}

func (t table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = printable.Line(cell)
	}
	fmt.Fprintln(t.writer, strings.Join(cells, "\t"))
}

func (t table) flush() error { return t.writer.Flush() }

// isTerminal says whether people read the stream, or write it. /dev/null is a
// device as well, and no terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(file.Fd())
}

// ago is how long ago a moment was.
func ago(moment time.Time) string { return format.When(moment, time.Now()) }

func cut(text string) string {
	const limit = 60
	runes := []rune(printable.FirstLine(text))
	if len(runes) <= limit {
		return string(runes)
	}
	return string(runes[:limit-1]) + "…"
}
