package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/when"
)

const (
	// enqueueBatch is how many lines of input make one statement.
	enqueueBatch = 1000
	// enqueueQuiet is how long the input may be silent before what has come is
	// added: whoever keeps a pipe open must not hold jobs back.
	enqueueQuiet = 100 * time.Millisecond
)

// lineParser makes a job of a line.
type lineParser func(line []byte) (jobq.EnqueueParams, error)

// lineEnqueuer adds a job for each line, in batches.
type lineEnqueuer struct {
	client *jobq.Client
	parse  lineParser
	print  func([]jobq.Enqueued) error
	meter  *meter
	batch  []jobq.EnqueueParams
	number int // the line that was read last
	sent   int // what is in the lines up to this one was added
	added  added
}

// enqueueLines adds a job for each line of standard input, in batches. What a
// batch before has added stays when a later line is refused, and the error
// says how far it came.
func (a *app) enqueueLines(cmd *cobra.Command, client *jobq.Client, parse lineParser) error {
	return a.enqueueInput(cmd, client, cmd.InOrStdin(), parse, func(ctx context.Context) <-chan inputLine {
		return readLines(ctx, cmd.InOrStdin())
	})
}

// enqueueInput is enqueueLines of any input.
func (a *app) enqueueInput(
	cmd *cobra.Command, client *jobq.Client, in io.Reader, parse lineParser, read func(context.Context) <-chan inputLine,
) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel() // ends the reader when a line is refused
	out := bufio.NewWriter(cmd.OutOrStdout())
	e := &lineEnqueuer{client: client, parse: parse, meter: newMeter(cmd.ErrOrStderr(), in), added: added{}}
	e.print = func(enqueued []jobq.Enqueued) error {
		return errors.Join(a.printEnqueued(out, enqueued), out.Flush())
	}
	err := e.run(ctx, read(ctx))
	e.meter.done()
	e.added.say(cmd, client)
	return err
}

func (e *lineEnqueuer) run(ctx context.Context, lines <-chan inputLine) error {
	quiet := time.NewTimer(enqueueQuiet)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return e.problem(fmt.Sprintf("after line %d", e.number), context.Cause(ctx))
		case <-quiet.C:
			if err := e.send(ctx); err != nil {
				return err
			}
		case line, open := <-lines:
			if !open {
				return e.send(ctx)
			}
			if err := e.add(ctx, line); err != nil {
				return err
			}
			quiet.Reset(enqueueQuiet)
		}
	}
}

// add takes a line, and sends the batch that it makes full.
func (e *lineEnqueuer) add(ctx context.Context, line inputLine) error {
	e.number = line.number
	at := fmt.Sprintf("line %d", e.number)
	if line.err != nil {
		return e.problem(at, line.err)
	}
	e.meter.read(line.size)
	text := bytes.TrimSpace(line.text)
	if len(text) == 0 {
		return nil
	}
	if !utf8.Valid(text) { // decoding would replace what is not, and make two keys the same
		return e.problem(at, usagef("not valid UTF-8"))
	}
	job, err := e.parse(text)
	if err != nil {
		return e.problem(at, err)
	}
	if e.batch = append(e.batch, job); len(e.batch) == enqueueBatch {
		return e.send(ctx)
	}
	return nil
}

func (e *lineEnqueuer) send(ctx context.Context) error {
	enqueued, err := e.client.EnqueueMany(ctx, e.batch)
	if err != nil {
		lines := fmt.Sprintf("lines %d to %d", e.sent+1, e.number)
		err = e.problem(lines, err)
		if unanswered := !errors.As(err, new(*pgconn.PgError)); unanswered &&
			(errors.Is(err, jobq.ErrUnavailable) || errors.Is(err, jobq.ErrTimeout) || errors.Is(err, context.Canceled)) {
			return fmt.Errorf("%w (%s may have been: there was no answer)", err, lines)
		}
		return err
	}
	e.added.addAll(e.batch)
	e.batch, e.sent = e.batch[:0], e.number
	e.meter.add(len(enqueued))
	if err := e.print(enqueued); err != nil {
		return e.problem("write ids", err)
	}
	return nil
}

// problem says how far the input was added.
func (e *lineEnqueuer) problem(at string, err error) error {
	if e.sent == 0 {
		return fmt.Errorf("%s: %w (nothing was added)", at, err)
	}
	return fmt.Errorf("%s: %w (the jobs before line %d were added)", at, err, e.sent+1)
}

// jobLine is one job of NDJSON input, with the names of the arguments of the SQL
// function enqueue. What is null or left out, the flags say; but null is a value of
// args and metadata.
type jobLine struct {
	Kind         string          `json:"kind"`
	Args         json.RawMessage `json:"args"`
	Queue        *string         `json:"queue"`
	Priority     *int16          `json:"priority"`
	RunAt        *lineTime       `json:"run_at"`
	MaxAttempts  *int            `json:"max_attempts"`
	MaxLost      *int            `json:"max_lost"`
	UniqueKey    *string         `json:"unique_key"`
	Uniqueness   lineUniqueness  `json:"uniqueness"`
	PartitionKey *string         `json:"partition_key"`
	Timeout      *lineDuration   `json:"timeout"`
	BackoffBase  *lineDuration   `json:"backoff_base"`
	BackoffMax   *lineDuration   `json:"backoff_max"`
	Tags         []string        `json:"tags"`
	Metadata     json.RawMessage `json:"metadata"`

	// For whom the job waits. Names are for --graph.
	Name         string             `json:"name"`
	After        []lineParent       `json:"after"`
	AfterFailure jobq.ParentFailure `json:"after_failure"`
}

// lineUniqueness is what a line says of its unique key beside the key.
type lineUniqueness struct {
	By         []string       `json:"by"`
	Window     *lineDuration  `json:"window"`
	For        *lineDuration  `json:"for"`
	OnConflict *jobq.Conflict `json:"on_conflict"`
}

// lineParent is a job that another one waits for: an id, or a name.
type lineParent struct {
	id   int64
	name string
}

// UnmarshalJSON reads it.
func (p *lineParent) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &p.name) == nil && string(text) != "null" {
		return nil
	}
	if json.Unmarshal(text, &p.id) != nil || p.id < 1 {
		return fmt.Errorf("after must be ids and names of jobs, not %s", cut(string(text)))
	}
	return nil
}

// lineDuration is a time as the flags have it, such as "10m".
type lineDuration time.Duration

// UnmarshalJSON reads it.
func (d *lineDuration) UnmarshalJSON(text []byte) error {
	var word string
	err := json.Unmarshal(text, &word)
	if err == nil {
		var duration time.Duration
		duration, err = when.ParseDuration(word)
		*d = lineDuration(duration)
	}
	if err != nil || *d <= 0 {
		return fmt.Errorf(`a time must be like "10m", not %s`, cut(string(text)))
	}
	return nil
}

// lineTime is a moment with its zone. A file is read long after it was written:
// "tomorrow" in it would be another day.
type lineTime time.Time

// UnmarshalJSON reads it.
func (m *lineTime) UnmarshalJSON(text []byte) error {
	if (*time.Time)(m).UnmarshalJSON(text) != nil {
		return fmt.Errorf(`run_at must be like "2026-12-31T23:59:00Z", not %s`, cut(string(text)))
	}
	return nil
}

// parseLine makes a job of a line: its args for the kind given, or all of it.
func parseLine(line []byte, args []string, options jobq.EnqueueOptions) (jobq.EnqueueParams, error) {
	if len(args) > 0 {
		if !json.Valid(line) {
			return jobq.EnqueueParams{}, usagef("args are not JSON: %s", cut(string(line)))
		}
		return jobq.EnqueueParams{Args: jobq.RawArgs{Name: args[0], JSON: line}, EnqueueOptions: options}, nil
	}
	var job jobLine
	if err := decodeLine(line, &job); err != nil {
		return jobq.EnqueueParams{}, usagef("not a job: %w", err)
	}
	params, names, err := job.params(options)
	if err == nil && (job.Name != "" || len(names) > 0) {
		return jobq.EnqueueParams{}, usagef("only the jobs of --graph have names, and wait for such")
	}
	return params, err
}

// params is the job, and the names of those that it waits for.
func (job *jobLine) params(options jobq.EnqueueOptions) (params jobq.EnqueueParams, after []string, err error) {
	// To the client, zero means the default; to those who write it, it does not.
	switch {
	case job.Queue != nil && *job.Queue == "":
		return params, nil, usagef("queue must be 1 to 128 characters")
	case job.UniqueKey != nil && *job.UniqueKey == "":
		return params, nil, usagef("unique_key must be 1 to 255 characters")
	case job.Uniqueness.By != nil && len(job.Uniqueness.By) == 0:
		return params, nil, usagef(`uniqueness: by must be 1 to 32 names of fields of args, such as ["id"], or ["*"] for all of args`)
	case job.Uniqueness.OnConflict != nil && *job.Uniqueness.OnConflict == "":
		return params, nil, usagef("uniqueness: on_conflict must be skip, replace or fail")
	case job.PartitionKey != nil && *job.PartitionKey == "":
		return params, nil, usagef("partition_key must be 1 to 255 characters")
	case job.MaxAttempts != nil && *job.MaxAttempts == 0:
		return params, nil, usagef("max_attempts must be 1 to 32767, not 0")
	case job.MaxLost != nil && *job.MaxLost == 0:
		return params, nil, usagef("max_lost must be 1 to 32767, not 0")
	}
	replace(&options.Queue, job.Queue)
	replace(&options.Priority, job.Priority)
	replace(&options.RunAt, (*time.Time)(job.RunAt))
	replace(&options.MaxAttempts, job.MaxAttempts)
	replace(&options.MaxLost, job.MaxLost)
	replace(&options.UniqueKey, job.UniqueKey)
	job.Uniqueness.replace(&options)
	replace(&options.PartitionKey, job.PartitionKey)
	replace(&options.Timeout, (*time.Duration)(job.Timeout))
	replace(&options.BackoffBase, (*time.Duration)(job.BackoffBase))
	replace(&options.BackoffMax, (*time.Duration)(job.BackoffMax))
	if job.Tags != nil {
		options.Tags = job.Tags
	}
	if job.Metadata != nil {
		options.Metadata = job.Metadata
	}
	options.After = slices.Clone(options.After) // of the flags, to which others are added
	for _, parent := range job.After {
		if parent.id > 0 {
			options.After = append(options.After, parent.id)
		} else {
			after = append(after, parent.name)
		}
	}
	options.OnParentFailure = cmp.Or(job.AfterFailure, options.OnParentFailure)
	return jobq.EnqueueParams{Args: jobq.RawArgs{Name: job.Kind, JSON: job.Args}, EnqueueOptions: options}, after, nil
}

// replace changes the options that a line gives.
func (u *lineUniqueness) replace(options *jobq.EnqueueOptions) {
	if u.By != nil {
		options.UniqueBy = u.By
	}
	if u.Window != nil || u.For != nil { // either stands in place of both flags
		options.UniqueWindow, options.UniqueFor = 0, 0
	}
	replace(&options.UniqueWindow, (*time.Duration)(u.Window))
	replace(&options.UniqueFor, (*time.Duration)(u.For))
	replace(&options.OnConflict, u.OnConflict)
}

// replace changes the option that a line gives.
func replace[T any](option, given *T) {
	if given != nil {
		*option = *given
	}
}

// decodeLine reads a line that is one JSON object, without other fields than
// those of the struct.
func decodeLine(line []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return lineProblem(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the end of the object")
	}
	return nil
}

// lineProblem says in words what encoding/json has against a line.
func lineProblem(err error) error {
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the line ends in the middle: a bracket or a quote is not closed")
	case !errors.As(err, &kind):
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	case kind.Field == "":
		return fmt.Errorf("a line must be a JSON object, not %s", kind.Value)
	}
	wants := "an object"
	switch kind.Type.Kind() {
	case reflect.String:
		wants = "a text"
	case reflect.Int16:
		wants = fmt.Sprintf("a whole number from %d to %d", math.MinInt16, math.MaxInt16)
	case reflect.Int:
		wants = "a whole number"
	case reflect.Slice:
		wants = "a list of texts"
		if kind.Field == "after" {
			wants = "a list of ids and names"
		}
	default:
	}
	return fmt.Errorf("%s must be %s, not %s", kind.Field, wants, kind.Value)
}
