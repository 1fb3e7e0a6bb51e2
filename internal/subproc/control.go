package subproc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// controlLineBytesMax bounds one line of the control channel.
const controlLineBytesMax = 1 << 20

// Message is one line that a program writes on file descriptor 3. What is not
// in the line is nil or "".
type Message struct {
	Progress   *float32 // percent
	Stage      string
	Message    string
	Checkpoint json.RawMessage
	Result     json.RawMessage
	Snooze     *time.Duration
	Cancel     *string // why
}

// ParseMessage reads one line, without its end. Unknown members are an error:
// a misspelt checkpoint would else be lost in silence.
func ParseMessage(line []byte) (Message, error) {
	var raw struct {
		Progress   *float32        `json:"progress"`
		Stage      string          `json:"stage"`
		Message    string          `json:"message"`
		Checkpoint json.RawMessage `json:"checkpoint"`
		Result     json.RawMessage `json:"result"`
		Snooze     *string         `json:"snooze"`
		Cancel     *string         `json:"cancel"`
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&raw); err != nil {
		return Message{}, fmt.Errorf("line %.80q: %w", line, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Message{}, fmt.Errorf("line %.80q: more than one value", line)
	}
	message := Message{
		Progress: raw.Progress, Stage: raw.Stage, Message: raw.Message, Checkpoint: raw.Checkpoint, Result: raw.Result, Cancel: raw.Cancel,
	}
	if raw.Snooze != nil {
		snooze, err := time.ParseDuration(*raw.Snooze)
		if err != nil || snooze < 0 {
			return Message{}, fmt.Errorf("line %.80q: snooze must be a duration such as 10m", line)
		}
		message.Snooze = &snooze
	}
	return message, nil
}

// readMessages reads lines to the end of the stream. One that is too long is
// skipped as a whole.
func readMessages(stream io.Reader, hear func(Message), complain func(error)) {
	reader := bufio.NewReaderSize(stream, 4<<10)
	var line []byte
	tooLong := false
	for {
		part, err := reader.ReadSlice('\n')
		if !tooLong {
			line = append(line, part...)
		}
		if len(line) > controlLineBytesMax {
			tooLong, line = true, nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		switch {
		case tooLong:
			tell(complain, fmt.Errorf("a line is longer than %d bytes", controlLineBytesMax))
		case len(bytes.TrimSpace(line)) > 0:
			deliver(bytes.TrimSpace(line), hear, complain)
		}
		line, tooLong = line[:0], false
		if err != nil {
			return // the end: the program and all that it started are gone
		}
	}
}

func deliver(line []byte, hear func(Message), complain func(error)) {
	message, err := ParseMessage(line)
	if err != nil {
		tell(complain, err)
		return
	}
	if hear != nil {
		hear(message)
	}
}

func tell(complain func(error), err error) {
	if complain != nil {
		complain(err)
	}
}
