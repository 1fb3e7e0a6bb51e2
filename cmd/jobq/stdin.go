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
	text   []byte
	number int // of the line where it begins, from 1
	size   int // in bytes of the input
	err    error
}

// sendLines reads in a goroutine until the end of the input, or of the context: only the former closes the channel. What
// ends the input otherwise is told as a line, and then as the error.
func sendLines(ctx context.Context, read func(tell func(inputLine) bool) error) <-chan inputLine {
	lines := make(chan inputLine)
	tell := func(line inputLine) bool {
		select {
		case lines <- line:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		if read(tell) == nil && ctx.Err() == nil {
			close(lines)
		}
	}()
	return lines
}

// readLines reads lines until the end of the input, or of the context: only the
// former closes the channel.
func readLines(ctx context.Context, in io.Reader) <-chan inputLine {
	return sendLines(ctx, func(tell func(inputLine) bool) error {
		scanner := bufio.NewScanner(in)
		scanner.Buffer(make([]byte, 64<<10), lineBytesMax)
		number := 1
		for ; scanner.Scan(); number++ {
			line := inputLine{text: bytes.Clone(scanner.Bytes()), number: number, size: len(scanner.Bytes()) + 1}
			if number == 1 {
				line.text, line.err = unmarked(line.text)
			}
			if !tell(line) || line.err != nil {
				return line.err
			}
		}
		err := scanner.Err()
		if err != nil {
			tell(inputLine{number: number, err: err})
		}
		return err
	})
}
