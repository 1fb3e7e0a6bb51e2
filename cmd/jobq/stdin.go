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
		for scanner.Scan() {
			if !tell(inputLine{text: bytes.Clone(scanner.Bytes())}) {
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
