package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
)

// csvFlags are those of `jobq enqueue --csv`.
type csvFlags struct {
	file string
	text []string // columns whose cells stay texts
}

func (f *csvFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "csv", "", `file of comma-separated values, or "-": a job for each row, the columns are its args`)
	flags.Var((*tagsFlag)(&f.text), "csv-text", "with --csv: cells of this column are texts, also numbers and true; may be repeated")
}

// enqueueCSV adds a job of the kind for each row of the file, in batches, as enqueueLines does.
func (a *app) enqueueCSV(cmd *cobra.Command, client *jobq.Client, kind string, f csvFlags, options jobq.EnqueueOptions) error {
	in := cmd.InOrStdin()
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // only read
		in = file
	}
	parse := func(args []byte) (jobq.EnqueueParams, error) { return parseLine(args, []string{kind}, options) }
	return a.enqueueInput(cmd, client, in, parse, func(ctx context.Context) <-chan inputLine {
		return sendLines(ctx, func(tell func(inputLine) bool) error { return readCSV(in, f.text, tell) })
	})
}

// csvRows reads the rows of a file, with their lines.
type csvRows struct {
	limit   *csvLimit
	reader  *csv.Reader
	columns []string
	isText  []bool // by column
	line    int    // where the row begins that was read last
}

// csvLimit ends the input where one row takes more than lineBytesMax, which is what a quote that is not closed
// makes of a large file.
type csvLimit struct {
	in   io.Reader
	left int
}

// Read reads, and refuses to go on where the row is too long.
func (l *csvLimit) Read(into []byte) (int, error) {
	if l.left <= 0 {
		return 0, usagef("the row has more than %d MiB: a quote may not be closed", lineBytesMax>>20)
	}
	n, err := l.in.Read(into)
	l.left -= n
	return n, err
}

// readCSV tells the args of each row as JSON until there are no more, or nobody listens.
//
//	dt,steps,label,note
//	0.10,100,007,        becomes    {"dt":0.10,"steps":100,"label":"007"}
func readCSV(in io.Reader, text []string, tell func(inputLine) bool) error {
	limit := &csvLimit{in: in, left: lineBytesMax}
	buffered := bufio.NewReader(limit)
	rows := &csvRows{limit: limit, reader: csv.NewReader(buffered), line: 1}
	rows.reader.TrimLeadingSpace = true
	err := skipMark(buffered)
	if err == nil {
		err = rows.readHeader(text)
	}
	if err != nil {
		tell(inputLine{err: err, number: 1})
		return err
	}
	for {
		line, err := rows.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		line.err = err
		if !tell(line) || err != nil {
			return err
		}
	}
}

// skipMark skips a byte order mark.
func skipMark(in *bufio.Reader) error {
	start, err := in.Peek(len("\ufeff"))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	rest, err := unmarked(start)
	if err == nil {
		_, err = in.Discard(len(start) - len(rest))
	}
	return err
}

// readHeader reads the names of the columns.
func (r *csvRows) readHeader(text []string) error {
	names, err := r.reader.Read()
	switch {
	case errors.Is(err, io.EOF):
		return usagef("the input is empty: its first line names the columns")
	case err != nil:
		return csvProblem(err, 0, 0)
	}
	for i, name := range names {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return usagef("column %d has no name", i+1)
		case !utf8.ValidString(name):
			return usagef("not valid UTF-8")
		case slices.Contains(r.columns, name):
			return usagef("there are two columns %q", name)
		case len(names) == 1 && strings.ContainsAny(name, ";\t"):
			return usagef("there is one column, %q: put commas between columns", name)
		}
		r.columns = append(r.columns, name)
	}
	r.isText = make([]bool, len(names))
	for _, name := range text {
		at := slices.Index(r.columns, name)
		if at < 0 {
			return usagef("--csv-text %q: the columns are %s%s", name, strings.Join(r.columns, ", "), didYouMean(name, r.columns))
		}
		r.isText[at] = true
	}
	return nil
}

// next is the next row, its args as JSON, or io.EOF.
func (r *csvRows) next() (line inputLine, err error) {
	before := r.reader.InputOffset()
	r.limit.left = lineBytesMax
	cells, err := r.reader.Read()
	if errors.Is(err, io.EOF) {
		return line, err
	}
	line.number = r.line + 1
	if err != nil {
		if syntax := (*csv.ParseError)(nil); errors.As(err, &syntax) {
			line.number = syntax.StartLine
		}
		return line, csvProblem(err, len(cells), len(r.columns))
	}
	r.line, _ = r.reader.FieldPos(0)
	line.number, line.size = r.line, int(r.reader.InputOffset()-before)
	line.text, err = r.args(cells)
	return line, err
}

// args are the args of a row. An empty cell is none.
func (r *csvRows) args(cells []string) ([]byte, error) {
	var args bytes.Buffer
	args.WriteByte('{')
	for i, cell := range cells {
		value, err := csvValue(cell, r.isText[i])
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", r.columns[i], err)
		}
		if value == nil {
			continue
		}
		name, err := json.Marshal(r.columns[i])
		if err != nil {
			return nil, err
		}
		if args.Len() > 1 {
			args.WriteByte(',')
		}
		args.Write(name)
		args.WriteByte(':')
		args.Write(value)
	}
	args.WriteByte('}')
	return args.Bytes(), nil
}

// csvValue is a cell as JSON: a number with all its digits, true or false, nil for an empty cell, else a text. What
// JSON does not have for a number, such as 007 and +1, is a text.
func csvValue(cell string, isText bool) (json.RawMessage, error) {
	word := strings.TrimSpace(cell)
	switch {
	case !utf8.ValidString(cell): // encoding would replace what is not
		return nil, usagef("not valid UTF-8")
	case word == "":
		return nil, nil
	case isText:
		return json.Marshal(cell)
	case (word[0] == '-' || word[0] >= '0' && word[0] <= '9') && json.Valid([]byte(word)):
		return json.RawMessage(word), nil
	case word == "true", word == "True", word == "TRUE":
		return json.RawMessage("true"), nil
	case word == "false", word == "False", word == "FALSE":
		return json.RawMessage("false"), nil
	}
	return json.Marshal(cell)
}

// csvProblem says in words what encoding/csv has against a row of so many cells.
func csvProblem(err error, cells, columns int) error {
	var syntax *csv.ParseError
	switch {
	case !errors.As(err, &syntax):
		return err
	case errors.Is(err, csv.ErrFieldCount):
		return usagef("the row has %s, and the header %s: a cell with a comma in it must be in quotes",
			format.Count(int64(cells), "cell"), format.Count(int64(columns), "column"))
	case errors.Is(err, csv.ErrBareQuote):
		return usagef(`a quote in a cell that does not begin with one: put the cell in quotes, and write "" for the quote`)
	case errors.Is(err, csv.ErrQuote):
		return usagef(`a cell in quotes does not end with a quote: write "" for a quote in it`)
	}
	return usagef("%w", syntax.Err)
}
