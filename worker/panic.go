package worker

import (
	"fmt"
	"runtime/debug"
)

// stackBytesMax bounds what is kept of a panic's stack.
const stackBytesMax = 8 << 10

// panicError is a panic of a handler, or of a method of the error that it has returned.
// Its text has the value of the panic and the stack.
type panicError struct {
	text  string
	value any
	stack []byte
}

func (e *panicError) Error() string { return e.text }

func newPanicError(value any) *panicError {
	stack := debug.Stack()
	stack = stack[:min(len(stack), stackBytesMax)]
	return &panicError{fmt.Sprintf("panic: %s\n\n%s", describe(value), stack), value, stack}
}

// guard calls user code, and turns a panic into an error.
func guard(call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	return call()
}

// textOf is the text of an error that a handler has returned. If its method Error panics, it is the
// text of that panic.
func textOf(err error) (text string) {
	panicked := guard(func() error {
		text = err.Error()
		return nil
	})
	if panicked != nil {
		return fmt.Sprintf("text of an error of type %T: %s", err, panicked)
	}
	return text
}

// describe is the value of a panic as fmt prints it. fmt itself panics if a method of the value
// panics with another value whose method panics as well.
func describe(value any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T, whose text panics", value)
		}
	}()
	return fmt.Sprint(value)
}
