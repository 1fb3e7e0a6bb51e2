// Package watch is what workers tell watchers, such as the terminal UI: digests
// of what has happened, small and few, and only while somebody watches.
package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

const (
	// bytesMax bounds a digest: PostgreSQL refuses notifications of 8,000 bytes.
	bytesMax = 7500
	// EventsMax bounds the jobs that a digest names.
	EventsMax = 60
	// textMax bounds each text of an event.
	textMax = 100
)

// Event is what has happened to one job.
type Event struct {
	ID       int64
	Token    int64  // of the lease that the run had
	State    string // after it; running for a progress report
	Attempts int
	Queue    string
	Kind     string
	TookMs   int64
	Percent  float32 // of a progress report
	Stage    string
}

// Count is how many runs of a queue have ended.
type Count struct{ Completed, Failed, Others int64 }

// Digest is what one worker process has done since its last one.
type Digest struct {
	Worker   string
	Sequence int64 // counts the digests of a process: a gap means that one was lost
	AtMs     int64 // when the first event happened, by the worker's clock, since 1970
	Queues   map[string]Count
	Events   []Event
	More     bool // there were more jobs than Events names
}

// wire is the digest as it travels. Short names: there is little room.
type wire struct {
	Version  int                 `json:"v"`
	Worker   string              `json:"p"`
	Sequence int64               `json:"n"`
	AtMs     int64               `json:"t"`
	Queues   map[string][3]int64 `json:"q,omitempty"`
	Events   [][]any             `json:"j,omitempty"`
	More     bool                `json:"more,omitempty"`
}

// Encode writes the digest, and leaves out events that there is no room for.
func (d *Digest) Encode() string {
	w := wire{Version: 1, Worker: cut(d.Worker), Sequence: d.Sequence, AtMs: d.AtMs, More: d.More || len(d.Events) > EventsMax}
	if len(d.Queues) > 0 {
		w.Queues = make(map[string][3]int64, len(d.Queues))
	}
	for name, count := range d.Queues {
		if len(w.Queues) == 50 {
			w.More = true
			break
		}
		w.Queues[cut(name)] = [3]int64{count.Completed, count.Failed, count.Others}
	}
	for _, e := range d.Events[:min(len(d.Events), EventsMax)] {
		w.Events = append(w.Events, []any{e.ID, e.State, e.Attempts, cut(e.Queue), cut(e.Kind), e.TookMs, e.Percent, cut(e.Stage), e.Token})
	}
	for {
		text, err := json.Marshal(w)
		if err != nil {
			return "" // a number that JSON does not have; nobody waits for it
		}
		if len(text) <= bytesMax {
			return string(text)
		}
		w.More = true
		if len(w.Events) == 0 {
			w.Queues = nil
		}
		w.Events = w.Events[:len(w.Events)/2]
	}
}

func cut(text string) string {
	if len(text) <= textMax {
		return text
	}
	end := textMax
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Parse reads a digest. Whoever may connect can send one: nothing in it is
// believed further than the screen.
func Parse(text string) (*Digest, error) {
	if len(text) > 8000 || !utf8.ValidString(text) {
		return nil, errors.New("digest: not one")
	}
	var w wire
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return nil, fmt.Errorf("digest: %w", err)
	}
	if w.Version != 1 {
		return nil, fmt.Errorf("digest: version %d is not known", w.Version)
	}
	d := &Digest{Worker: w.Worker, Sequence: w.Sequence, AtMs: w.AtMs, More: w.More, Queues: make(map[string]Count, len(w.Queues))}
	for name, counts := range w.Queues {
		if counts[0] < 0 || counts[1] < 0 || counts[2] < 0 || max(counts[0], counts[1], counts[2]) > 1<<40 {
			return nil, errors.New("digest: impossible counts")
		}
		d.Queues[name] = Count{counts[0], counts[1], counts[2]}
	}
	for _, fields := range w.Events[:min(len(w.Events), EventsMax)] {
		event, ok := parseEvent(fields)
		if !ok {
			return nil, errors.New("digest: not an event")
		}
		d.Events = append(d.Events, event)
	}
	return d, nil
}

func parseEvent(fields []any) (event Event, ok bool) {
	if len(fields) < 9 {
		return event, false
	}
	numbers, texts := [5]float64{}, [4]string{}
	for i, at := range []int{0, 2, 5, 6, 8} {
		if numbers[i], ok = fields[at].(float64); !ok || math.Abs(numbers[i]) > 1<<53 {
			return event, false
		}
	}
	for i, at := range []int{1, 3, 4, 7} {
		if texts[i], ok = fields[at].(string); !ok {
			return event, false
		}
	}
	if numbers[0] < 1 || numbers[1] < 0 || numbers[1] > 1<<20 {
		return event, false
	}
	return Event{
		ID: int64(numbers[0]), Token: int64(numbers[4]), Attempts: int(numbers[1]), TookMs: int64(numbers[2]), Percent: float32(min(max(numbers[3], 0), 100)),
		State: texts[0], Queue: texts[1], Kind: texts[2], Stage: texts[3],
	}, true
}
