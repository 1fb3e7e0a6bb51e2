package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
)

// lineBytesMax bounds a line of input: args of the largest size, and more.
const lineBytesMax = 16 << 20

// awaitInput waits for a read of standard input or the end of the context. The
// read itself knows no context, and would keep an interrupt waiting for ever:
// one that is given up goes on until the process ends.
func awaitInput[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := read()
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// unmarked is a text without the byte order mark that programs of Windows put before it. UTF-16, which begins with
// another mark, is refused: nothing else says what it is.
func unmarked(text []byte) ([]byte, error) {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return nil, usagef("the text is UTF-16: save it as UTF-8")
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), nil
}

// inputLine is a line, or why there are no more.
type inputLine struct {
	text []byte
	err  error
}

// readLines reads lines until the end of the input, or of the context: only the
// former closes the channel.
func readLines(ctx context.Context, in io.Reader) <-chan inputLine {
	lines := make(chan inputLine)
	go func() {
		tell := func(line inputLine) bool {
			select {
			case lines <- line:
				return true
			case <-ctx.Done():
				return false
			}
		}
		scanner := bufio.NewScanner(in)
		scanner.Buffer(make([]byte, 64<<10), lineBytesMax)
		for isFirst := true; scanner.Scan(); isFirst = false {
			line := inputLine{text: bytes.Clone(scanner.Bytes())}
			if isFirst {
				line.text, line.err = unmarked(line.text)
			}
			if !tell(line) || line.err != nil {
				return
			}
		}
		if err := scanner.Err(); err != nil {
			tell(inputLine{err: err})
			return
		}
		close(lines)
	}()
	return lines
}
