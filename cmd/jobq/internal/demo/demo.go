// Package demo is what `jobq demo` does: real work on files of this machine,
// enqueued through SQL and through Go, run by a program and by a Go handler in
// two worker processes, one of which is killed halfway.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

const (
	// Queue is the queue that the demo works in.
	Queue = "demo"
	// Lease is short, so that nobody waits long for the recovery.
	Lease = 5 * time.Second

	tick        = 100 * time.Millisecond
	killAtShare = 0.4 // of the jobs completed
	longest     = 3 * time.Minute
)

// Config is what the demo needs to know.
type Config struct {
	Client *jobq.Client
	// Folder has the files to work on. Empty means a few well-known ones.
	Folder string
	// WorkerCommand starts a process that calls RunWorker for the client's
	// database and schema.
	WorkerCommand []string
	// WorkerEnv is added to the environment of that process.
	WorkerEnv []string
	// Out is told what happens, and if it is a Terminal, how far the work has
	// come.
	Out      io.Writer
	Terminal bool
}

// Run does the demo and reports what happened. An error means that not every
// job was completed.
func Run(ctx context.Context, config Config) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	d := &demo{Config: config}
	var err error
	if d.scratch, err = os.MkdirTemp("", "jobq-demo-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(d.scratch) }() // a temporary folder
	lease := Lease
	if _, err := operator.New(config.Client, "jobq demo").SetQueue(ctx, Queue, operator.QueueChange{Lease: &lease}); err != nil {
		return err
	}
	if err := d.enqueue(ctx); err != nil {
		return err
	}
	victim, err := d.startWorker(ctx, "A")
	if err != nil {
		return err
	}
	defer victim.stop()
	survivor, err := d.startWorker(ctx, "B")
	if err != nil {
		return err
	}
	defer survivor.stop()
	if err := d.killHalfway(ctx, victim); err != nil {
		return err
	}
	if err := d.awaitEnd(ctx); err != nil {
		return err
	}
	return d.report(ctx)
}

// demo is the state of a run.
type demo struct {
	Config
	scratch  string
	ids      []int64
	orphans  []int64 // jobs that the killed worker held
	killedAt time.Time
	started  time.Time
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

// enqueue adds a checksum job for each file, through plain SQL, and a
// thumbnail job for each image, through Go.
func (d *demo) enqueue(ctx context.Context) error {
	found, err := findFiles(ctx, d.Folder)
	if err != nil {
		return err
	}
	lines := make([]map[string]any, len(found.files))
	for i, path := range found.files {
		lines[i] = map[string]any{"kind": checksumKind, "queue": Queue, "args": map[string]string{"path": path}}
	}
	jobs, err := json.Marshal(lines)
	if err != nil {
		return err
	}
	// Any language does it like this: one call, with the schema's name before it.
	rows, err := d.Client.Pool().Query(ctx, `select id from "`+d.Client.Schema()+`".enqueue_many($1)`, jobs)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		d.ids = append(d.ids, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	thumbnails := make([]jobq.EnqueueParams, len(found.images))
	for i, path := range found.images {
		thumbnails[i] = jobq.EnqueueParams{
			Args:           Thumbnail{Path: path, Folder: d.scratch, Width: 160},
			EnqueueOptions: jobq.EnqueueOptions{Queue: Queue},
		}
	}
	enqueued, err := d.Client.EnqueueMany(ctx, thumbnails)
	if err != nil {
		return err
	}
	for _, job := range enqueued {
		d.ids = append(d.ids, job.ID)
	}
	d.say("enqueued   %d checksums through SQL, %d thumbnails through Go, of files in %s",
		len(found.files), len(found.images), strings.Join(found.folders, ", "))
	return nil
}

// workerProcess is a worker in a process of its own.
type workerProcess struct {
	name    string
	command *exec.Cmd
	log     *os.File
}

func (d *demo) startWorker(ctx context.Context, name string) (*workerProcess, error) {
	log, err := os.Create(filepath.Join(d.scratch, "worker-"+name+".log")) // #nosec G304 -- our own folder
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, d.WorkerCommand[0], d.WorkerCommand[1:]...) // #nosec G204 -- this program itself
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.Env = append(os.Environ(), d.WorkerEnv...)
	command.Stdout, command.Stderr = log, log
	// A group of its own: an interrupt of the demo ends it through stop.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start worker %s: %w", name, err)
	}
	if d.started.IsZero() {
		d.started = time.Now()
	}
	d.say("started    worker %s, pid %d", name, command.Process.Pid)
	return &workerProcess{name: name, command: command, log: log}, nil
}

// stop drains the worker, if it still runs.
func (w *workerProcess) stop() {
	_ = w.command.Process.Signal(syscall.SIGTERM) // gone already: fine
	_ = w.command.Wait()                          // its exit code was never in question
	_ = w.log.Close()
}

// killHalfway kills the worker with SIGKILL once a good part of the jobs are
// done and it is in the middle of some.
func (d *demo) killHalfway(ctx context.Context, victim *workerProcess) error {
	done := 0
	for {
		var err error
		if done, err = d.completed(ctx); err != nil {
			return err
		}
		d.progress(done)
		held, err := d.heldBy(ctx, victim)
		if err != nil {
			return err
		}
		if float64(done) >= killAtShare*float64(len(d.ids)) && len(held) > 0 {
			break
		}
		if done == len(d.ids) {
			return errors.New("the work was done before a worker could be killed: name a larger --folder")
		}
		if err := sleep.For(ctx, tick); err != nil {
			return d.stalled(err)
		}
	}
	if err := victim.command.Process.Kill(); err != nil {
		return fmt.Errorf("kill worker %s: %w", victim.name, err)
	}
	d.killedAt = time.Now()
	_ = victim.command.Wait() // killed: that is the point
	orphans, err := d.heldBy(ctx, victim)
	if err != nil {
		return err
	}
	d.orphans = orphans
	d.endBar()
	d.say("killed     worker %s, pid %d, with SIGKILL at %d of %d jobs; it held %d", victim.name, victim.command.Process.Pid, done, len(d.ids), len(orphans))
	return nil
}

// heldBy returns the jobs that the worker has leases on.
func (d *demo) heldBy(ctx context.Context, w *workerProcess) ([]int64, error) {
	page, err := d.Client.List(ctx, jobq.Filter{States: []jobq.State{jobq.StateRunning}, Queue: Queue, Limit: 1000})
	if err != nil {
		return nil, err
	}
	var held []int64
	pid := fmt.Sprintf("-%d-", w.command.Process.Pid)
	for _, job := range page.Jobs {
		if strings.Contains(job.LeaseOwner, pid) {
			held = append(held, job.ID)
		}
	}
	return held, nil
}

// completed counts the demo's jobs that are completed.
func (d *demo) completed(ctx context.Context) (int, error) {
	waiting := 0
	states := []jobq.State{jobq.StateScheduled, jobq.StateAvailable, jobq.StateRunning, jobq.StateFailed, jobq.StateCancelled}
	filter := jobq.Filter{States: states, Queue: Queue, Limit: 1000}
	for {
		page, err := d.Client.List(ctx, filter)
		if err != nil {
			return 0, err
		}
		for _, job := range page.Jobs {
			if job.ID >= d.ids[0] {
				waiting++
			}
		}
		if page.Next == 0 {
			return len(d.ids) - waiting, nil
		}
		filter.Before = page.Next
	}
}

func (d *demo) awaitEnd(ctx context.Context) error {
	for {
		done, err := d.completed(ctx)
		if err != nil {
			return err
		}
		d.progress(done)
		if done == len(d.ids) {
			d.endBar()
			return nil
		}
		if err := sleep.For(ctx, tick); err != nil {
			return d.stalled(err)
		}
	}
}

// progress draws a bar over the one before.
func (d *demo) progress(done int) {
	if !d.Terminal {
		return
	}
	const width = 40
	full := done * width / len(d.ids)
	fmt.Fprintf(d.Out, "\rworking    [%s%s] %d of %d ", strings.Repeat("#", full), strings.Repeat(".", width-full), done, len(d.ids))
}

func (d *demo) endBar() {
	if d.Terminal {
		d.say("")
	}
}

// stalled adds what the workers wrote to the reason for giving up.
func (d *demo) stalled(err error) error {
	for _, name := range []string{"A", "B"} {
		content, readErr := os.ReadFile(filepath.Join(d.scratch, "worker-"+name+".log")) // #nosec G304 -- our own
		if readErr == nil {
			err = fmt.Errorf("%w\nworker %s wrote:\n%s", err, name, content[max(0, len(content)-2000):])
		}
	}
	return err
}

// report says what happened to every job, and above all to the orphans.
func (d *demo) report(ctx context.Context) error {
	took := time.Since(d.started)
	recovered := 0
	var slowest time.Duration
	for _, id := range d.orphans {
		job, err := d.Client.Get(ctx, id)
		if err != nil {
			return err
		}
		if job.State != jobq.StateCompleted {
			continue // finished by the first run, between the list and the kill
		}
		recovered++
		if job.Crashes > 0 {
			slowest = max(slowest, job.StartedAt.Sub(d.killedAt))
		}
	}
	thumbnails, err := filepath.Glob(filepath.Join(d.scratch, "*.png"))
	if err != nil {
		return err
	}
	d.say("completed  %d of %d jobs in %.1f s; %d thumbnails made", len(d.ids), len(d.ids), took.Seconds(), len(thumbnails))
	d.say("recovered  %d of the killed worker's %d jobs: run again by the other worker, no later than %.1f s", recovered, len(d.orphans), slowest.Seconds())
	d.say("           after the kill (their leases were %s long), each with one attempt counted as a crash", Lease)
	if len(d.orphans) > 0 {
		if err := d.tell(ctx, d.orphans[0]); err != nil {
			return err
		}
	}
	if recovered != len(d.orphans) {
		return fmt.Errorf("%d jobs of the killed worker were not completed", len(d.orphans)-recovered)
	}
	return nil
}

// tell shows the runs of one job.
func (d *demo) tell(ctx context.Context, id int64) error {
	job, err := d.Client.Get(ctx, id)
	if err != nil {
		return err
	}
	runs, err := monitor.New(d.Client).Attempts(ctx, id)
	if err != nil {
		return err
	}
	d.say("for one    job %d, %s %s", job.ID, job.Kind, job.Args)
	for _, run := range runs {
		if run.Outcome == jobq.OutcomeLost {
			d.say("           run %d on %s: lost, %s", run.Number, run.WorkerID, run.Error)
		}
	}
	d.say("           run %d on %s: %s %s", job.Attempts+1, job.LeaseOwner, job.State, job.Result)
	return nil
}
