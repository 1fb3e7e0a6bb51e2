package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
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

// table writes rows in columns, as wide as the cells of a terminal that their texts take: 日本語 takes six, and an emoji
// of five characters two. Texts are made safe to show.
type table struct {
	out    io.Writer
	rows   [][]string
	widths []int // of the columns, in cells of a terminal
}

// columnGap is how many blanks are between columns.
const columnGap = 2

func newTable(out io.Writer, header ...string) *table {
	t := newFields(out)
	t.row(header...)
	return t
}

// newFields is a table without a header, such as names and their values.
func newFields(out io.Writer) *table { return &table{out: out} }

func (t *table) row(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = printable.Line(cell)
		if i == len(t.widths) {
			t.widths = append(t.widths, 0)
		}
		t.widths[i] = max(t.widths[i], ansi.StringWidth(row[i]))
	}
	t.rows = append(t.rows, row)
}

// flush writes the rows.
func (t *table) flush() error {
	var text strings.Builder
	for _, row := range t.rows {
		for i, cell := range row {
			text.WriteString(cell)
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", t.widths[i]-ansi.StringWidth(cell)+columnGap))
			}
		}
		text.WriteByte('\n')
	}
	_, err := io.WriteString(t.out, text.String())
	return err
}

// isTerminal says whether people read the stream, or write it. /dev/null is a
// device as well, and no terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(file.Fd())
}

// ago is how long ago a moment was.
func ago(moment time.Time) string { return format.When(moment, time.Now()) }

// cut is the first line of a text, of at most 60 cells of a terminal.
func cut(text string) string {
	const limit = 60
	return ansi.Truncate(printable.FirstLine(text), limit, "…")
}
