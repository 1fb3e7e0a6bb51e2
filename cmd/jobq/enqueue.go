package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
)

const (
	// enqueueBatch is how many lines of input make one statement.
	enqueueBatch = 1000
	// lineBytesMax bounds a line of input: args of the largest size, and more.
	lineBytesMax = 16 << 20
)

// jobLine is one job of NDJSON input, with the names of the SQL function's
// arguments.
type jobLine struct {
	Kind        string          `json:"kind"`
	Args        json.RawMessage `json:"args"`
	Queue       string          `json:"queue"`
	Priority    int16           `json:"priority"`
	RunAt       time.Time       `json:"run_at"`
	MaxAttempts int             `json:"max_attempts"`
	UniqueKey   string          `json:"unique_key"`
	Tags        []string        `json:"tags"`
	Metadata    json.RawMessage `json:"metadata"`
}

func newEnqueueCommand(a *app) *cobra.Command {
	var options jobq.EnqueueOptions
	var runAt string
	var ndjson, exec bool
	command := &cobra.Command{
		Use:   "enqueue KIND [ARGS | @FILE | -]",
		Short: "Add jobs",
		Long: `Add a job of a kind. Its args are JSON: on the command line, in a file, or "-" for
many on standard input, one job's args a line. With --ndjson, each line of standard
input is a whole job: {"kind": "resize", "args": {"id": 1}, "queue": "images"}.
With --exec, the job is a program and its arguments, for workers with --allow-exec: on
the command line, or many on standard input, one command a line (cut as a shell cuts
it, nothing is expanded), or with --ndjson {"cmd": ["ls", "-l"], "env": {}, "cwd": "/"}.
The id of each job is printed; with a unique key that is taken, the id of its holder.`,
		Example: `  jobq enqueue resize '{"id": 1}' --queue images --max-attempts 5
  jobq enqueue report @args.json --delay 10m --unique-key monthly
  jq -c '.[]' images.json | jobq enqueue resize -
  jobq enqueue --ndjson < jobs.ndjson
  jobq enqueue --exec -- convert big.png small.jpg    # for workers with --allow-exec
  ls *.png | sed 's/.*/pngquant -- &/' | jobq enqueue --exec -`,
		Args: func(_ *cobra.Command, args []string) error {
			if exec && len(args) == 0 && !ndjson {
				return usagef("usage: jobq enqueue --exec -- PROGRAM ARGS..., or - for many on standard input, or --ndjson")
			}
			if exec && !ndjson {
				return nil
			}
			if ndjson && len(args) > 0 {
				return usagef("--ndjson takes whole jobs from standard input, and no KIND")
			}
			if !ndjson && (len(args) < 1 || len(args) > 2) {
				return usagef("usage: jobq enqueue KIND [ARGS | @FILE | -]")
			}
			return nil
		},
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			if runAt != "" {
				at, err := time.Parse(time.RFC3339, runAt)
				if err != nil {
					return usagef("--run-at %q: must be like 2026-12-31T23:59:00Z", runAt)
				}
				options.RunAt = at
			}
			if exec {
				return a.enqueueExec(cmd, client, args, ndjson, options)
			}
			if ndjson || (len(args) == 2 && args[1] == "-") {
				return a.enqueueLines(cmd, client, func(line []byte) (jobq.EnqueueParams, error) { return parseLine(line, args, options) })
			}
			return a.enqueueOne(cmd, client, args, options)
		}),
	}
	flags := command.Flags()
	flags.StringVarP(&options.Queue, "queue", "q", "", `queue (default "default")`)
	flags.Int16Var(&options.Priority, "priority", 0, "lower runs first")
	flags.StringVar(&runAt, "run-at", "", "earliest start, as 2026-12-31T23:59:00Z")
	flags.DurationVar(&options.Delay, "delay", 0, "earliest start, from now")
	flags.IntVar(&options.MaxAttempts, "max-attempts", 0, "attempts before the job fails for good (default 25)")
	flags.DurationVar(&options.Timeout, "timeout", 0, "longest run (default no limit)")
	flags.StringVar(&options.UniqueKey, "unique-key", "", "at most one unfinished job of the kind with this key")
	flags.StringSliceVar(&options.Tags, "tag", nil, "tag, may be repeated")
	flags.BoolVar(&exec, "exec", false, "the job is a program to run: its words, or many on standard input")
	flags.BoolVar(&ndjson, "ndjson", false, "read whole jobs from standard input, one a line")
	a.addJSONFlag(command)
	return command
}

func (a *app) enqueueOne(cmd *cobra.Command, client *jobq.Client, args []string, options jobq.EnqueueOptions) error {
	raw := jobq.RawArgs{Name: args[0]}
	if len(args) == 2 {
		raw.JSON = []byte(args[1])
		if name, ok := strings.CutPrefix(args[1], "@"); ok {
			content, err := os.ReadFile(name) // #nosec G304 -- the caller's own file
			if err != nil {
				return err
			}
			raw.JSON = bytes.TrimSpace(content)
		}
		if !json.Valid(raw.JSON) {
			return usagef("args are not JSON: %s", cut(string(raw.JSON)))
		}
	}
	enqueued, err := client.Enqueue(cmd.Context(), raw, &options)
	if err != nil {
		return err
	}
	return a.printEnqueued(cmd.OutOrStdout(), []jobq.Enqueued{enqueued})
}

func (a *app) printEnqueued(out io.Writer, enqueued []jobq.Enqueued) error {
	for _, job := range enqueued {
		var err error
		if a.json {
			err = json.NewEncoder(out).Encode(job)
		} else {
			_, err = fmt.Fprintln(out, job.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enqueueLines adds a job for each line of standard input, in batches. What a
// batch before has added stays when a later line is refused, and the error
// says how far it came.
func (a *app) enqueueLines(cmd *cobra.Command, client *jobq.Client, parse func(line []byte) (jobq.EnqueueParams, error)) error {
	lines := bufio.NewScanner(cmd.InOrStdin())
	lines.Buffer(make([]byte, 64<<10), lineBytesMax)
	meter := newMeter(cmd.ErrOrStderr(), cmd.InOrStdin())
	defer meter.done()
	out := bufio.NewWriter(cmd.OutOrStdout())
	defer func() { _ = out.Flush() }() // a closed pipe shows in the write before

	batch := make([]jobq.EnqueueParams, 0, enqueueBatch)
	number, firstOfBatch := 0, 1
	send := func() error {
		enqueued, err := client.EnqueueMany(cmd.Context(), batch)
		if err != nil {
			return fmt.Errorf("lines %d to %d: %w (the jobs before line %d were added)", firstOfBatch, number, err, firstOfBatch)
		}
		batch, firstOfBatch = batch[:0], number+1
		meter.add(len(enqueued))
		return a.printEnqueued(out, enqueued)
	}
	for lines.Scan() {
		number++
		meter.read(len(lines.Bytes()) + 1)
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		job, err := parse(line)
		if err != nil {
			return fmt.Errorf("line %d: %w (the jobs before line %d were added)", number, err, firstOfBatch)
		}
		if batch = append(batch, job); len(batch) == enqueueBatch {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w (the jobs before line %d were added)", number+1, err, firstOfBatch)
	}
	return send()
}

// parseLine makes a job of a line: its args for the kind given, or all of it.
func parseLine(line []byte, args []string, options jobq.EnqueueOptions) (jobq.EnqueueParams, error) {
	if len(args) > 0 {
		if !json.Valid(line) {
			return jobq.EnqueueParams{}, usagef("args are not JSON: %s", cut(string(line)))
		}
		return jobq.EnqueueParams{Args: jobq.RawArgs{Name: args[0], JSON: bytes.Clone(line)}, EnqueueOptions: options}, nil
	}
	var job jobLine
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&job); err != nil {
		return jobq.EnqueueParams{}, usagef("not a job: %w", err)
	}
	given := options
	if job.Queue != "" {
		given.Queue = job.Queue
	}
	if job.Priority != 0 {
		given.Priority = job.Priority
	}
	if !job.RunAt.IsZero() {
		given.RunAt = job.RunAt
	}
	if job.MaxAttempts != 0 {
		given.MaxAttempts = job.MaxAttempts
	}
	if job.UniqueKey != "" {
		given.UniqueKey = job.UniqueKey
	}
	if job.Tags != nil {
		given.Tags = job.Tags
	}
	given.Metadata = job.Metadata
	return jobq.EnqueueParams{Args: jobq.RawArgs{Name: job.Kind, JSON: job.Args}, EnqueueOptions: given}, nil
}

// meter shows on a terminal how far a long input has come.
type meter struct {
	out         io.Writer // nil when nobody looks
	bytesTotal  int64     // 0 when unknown
	bytesRead   int64
	jobs        int
	started     time.Time
	lastShownAt time.Time
}

func newMeter(out io.Writer, in io.Reader) *meter {
	m := &meter{started: time.Now()}
	if isTerminal(out) {
		m.out = out
	}
	if file, ok := in.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			m.bytesTotal = info.Size()
		}
	}
	return m
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (m *meter) read(bytes int) { m.bytesRead += int64(bytes) }

func (m *meter) add(jobs int) {
	m.jobs += jobs
	if m.out != nil && time.Since(m.lastShownAt) > 100*time.Millisecond {
		m.lastShownAt = time.Now()
		m.show()
	}
}

func (m *meter) show() {
	const width = 30
	bar := ""
	if m.bytesTotal > 0 {
		full := int(min(m.bytesRead*width/m.bytesTotal, width))
		bar = fmt.Sprintf("[%s%s] %3d%%  ", strings.Repeat("#", full), strings.Repeat(".", width-full), min(m.bytesRead*100/m.bytesTotal, 100))
	}
	rate := float64(m.jobs) / max(time.Since(m.started).Seconds(), 0.001)
	fmt.Fprintf(m.out, "\r%s%d jobs, %.0f/s ", bar, m.jobs, rate)
}

func (m *meter) done() {
	if m.out != nil && m.jobs > 0 {
		m.show()
		fmt.Fprintln(m.out)
	}
}
