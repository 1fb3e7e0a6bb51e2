package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Entry is one line of a ledger: what a process outside of the database did.
// Ledgers are append-only files, a line in each write, so that a process that
// is killed leaves whole lines.
type Entry struct {
	Mono  time.Duration `json:"mono"` // CLOCK_MONOTONIC, comparable between processes of one machine
	PID   int           `json:"pid"`
	What  string        `json:"what"` // begin, beat, end; intent, ack, refused
	Key   string        `json:"key,omitempty"`
	Job   int64         `json:"job,omitempty"`
	Token int64         `json:"token,omitempty"`
	Idem  string        `json:"idem,omitempty"` // the idempotency key
}

// Ledgers of a run.
const (
	Effects   = "effects.jsonl"   // by the programs that jobs run
	Producers = "producers.jsonl" // by who enqueues
)

// Append adds a line to a ledger of the folder.
func Append(folder, ledger string, entry Entry) error {
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(folder, ledger), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666) // #nosec G302 G304 -- a test's folder
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// ReadLedger returns a ledger's lines, in the order in which they were written.
func ReadLedger(folder, ledger string) ([]Entry, error) {
	file, err := os.Open(filepath.Join(folder, ledger)) // #nosec G304 -- a test's folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	var entries []Entry
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry Entry
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			return nil, fmt.Errorf("ledger %s: line %q: %w", ledger, lines.Text(), err)
		}
		entries = append(entries, entry)
	}
	return entries, lines.Err()
}
