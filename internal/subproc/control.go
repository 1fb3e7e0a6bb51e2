package subproc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jobq-dev/jobq/internal/when"
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
	Cancel     *string         // why
	Enqueue    json.RawMessage // a job
}

// Reply is one line of a program that runs many jobs: a Message, or the end of
// the job with this id. It ended well when Done is set, badly when Error is.
type Reply struct {
	Message
	ID      *int64
	Done    bool
	Error   *string
	Discard bool
	Retry   *time.Duration // after which to try again
}

// rawMessage and rawReply are a Message and a Reply as JSON.
type rawMessage struct {
	Progress   *float32        `json:"progress"`
	Stage      string          `json:"stage"`
	Message    string          `json:"message"`
	Checkpoint json.RawMessage `json:"checkpoint"`
	Result     json.RawMessage `json:"result"`
	Snooze     *string         `json:"snooze"`
	Cancel     *string         `json:"cancel"`
	Enqueue    json.RawMessage `json:"enqueue"`
}

type rawReply struct {
	rawMessage
	ID      *int64  `json:"id"`
	Done    *bool   `json:"done"`
	Error   *string `json:"error"`
	Discard bool    `json:"discard"`
	Retry   *string `json:"retry"`
}

// ParseMessage reads one line, without its end. Unknown members are an error:
// a misspelt checkpoint would else be lost in silence.
func ParseMessage(line []byte) (Message, error) {
	var raw rawMessage
	if err := decodeLine(line, &raw); err != nil {
		return Message{}, err
	}
	return raw.message(line)
}

// ParseReply reads one line of a program that runs many jobs, as strictly.
func ParseReply(line []byte) (Reply, error) {
	var raw rawReply
	if err := decodeLine(line, &raw); err != nil {
		return Reply{}, err
	}
	message, err := raw.message(line)
	if err != nil {
		return Reply{}, err
	}
	retry, err := durationIn(line, "retry", raw.Retry)
	if err != nil {
		return Reply{}, err
	}
	reply := Reply{Message: message, ID: raw.ID, Done: raw.Done != nil && *raw.Done, Error: raw.Error, Discard: raw.Discard, Retry: retry}
	switch {
	case reply.Ends() && reply.ID == nil:
		return Reply{}, fmt.Errorf("%s: it ends a job without saying which: id is missing", quoted(line))
	case !reply.Ends() && (raw.Done != nil || reply.ID != nil && !reply.reports()):
		return Reply{}, fmt.Errorf(`%s: it names a job and does not end it: "done": true, error, snooze or cancel is missing`, quoted(line))
	}
	return reply, nil
}

// reports says whether the line tells something about a job that goes on. A
// result with an id is not that: whoever writes it believes to have answered.
func (r Reply) reports() bool {
	return r.Progress != nil || r.Stage != "" || r.Message.Message != "" || r.Checkpoint != nil || r.Enqueue != nil
}

// Ends says whether the reply is the end of its job.
func (r Reply) Ends() bool {
	return r.Done || r.Error != nil || r.Discard || r.Retry != nil || r.Snooze != nil || r.Cancel != nil
}

func decodeLine(line []byte, target any) error {
	line = bytes.TrimPrefix(line, []byte("\ufeff")) // .NET begins what it writes with a byte order mark
	if len(line) == 0 || line[0] != '{' {           // null would be read as an object that says nothing
		return fmt.Errorf("%s: not a JSON object", quoted(line))
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(target); err != nil {
		reason := err.Error() // it may name a member of any length
		return fmt.Errorf("%s: %s", quoted(line), reason[:min(len(reason), 200)])
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: more than one value", quoted(line))
	}
	return nil
}

// quoted is the beginning of a line, for an error that speaks of it.
func quoted(line []byte) string {
	const shownMax = 80
	if len(line) <= shownMax {
		return fmt.Sprintf("%q", line)
	}
	return fmt.Sprintf("%.*q… (%d bytes)", shownMax, line, len(line))
}

func (m rawMessage) message(line []byte) (Message, error) {
	snooze, err := durationIn(line, "snooze", m.Snooze)
	return Message{
		Progress: m.Progress, Stage: m.Stage, Message: m.Message, Checkpoint: m.Checkpoint, Result: m.Result,
		Snooze: snooze, Cancel: m.Cancel, Enqueue: m.Enqueue,
	}, err
}

func durationIn(line []byte, member string, text *string) (*time.Duration, error) {
	if text == nil {
		return nil, nil
	}
	duration, err := when.ParseDuration(*text)
	if err != nil {
		return nil, fmt.Errorf(`%s: %s must be a duration such as "10m": %w`, quoted(line), member, err)
	}
	return &duration, nil
}

// ReadLines calls handle for each line that is not blank, without its end, until
// the stream ends. A line that is too long is complained about as soon as it is
// too long, since its end may never come, and skipped as a whole. The number is
// the line's, from 1. handle may use the line only until it returns.
func ReadLines(stream io.Reader, handle func(number int, line []byte), complain func(number int, err error)) {
	reader := bufio.NewReaderSize(stream, 4<<10)
	var line []byte
	tooLong := false
	for number := 1; ; {
		part, err := reader.ReadSlice('\n')
		if !tooLong {
			line = append(line, part...)
			if tooLong = len(bytes.TrimSuffix(line, []byte("\n"))) > controlLineBytesMax; tooLong {
				complain(number, fmt.Errorf("%.80q…: longer than %d bytes", line, controlLineBytesMax))
				line = nil
			}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if !tooLong && len(bytes.TrimSpace(line)) > 0 {
			handle(number, bytes.TrimSpace(line))
		}
		line, tooLong = line[:0], false
		number++
		if err != nil {
			return
		}
	}
}

// readMessages reads the control channel until the program and all that it
// started are gone. Either function may be nil.
func readMessages(stream io.Reader, handle func(Message), complain func(error)) {
	if complain == nil {
		complain = func(error) {}
	}
	badLine := func(number int, err error) { complain(fmt.Errorf("line %d: %w", number, err)) }
	ReadLines(stream, func(number int, line []byte) {
		message, err := ParseMessage(line)
		switch {
		case err != nil:
			badLine(number, err)
		case handle != nil:
			handle(message)
		}
	}, badLine)
}
