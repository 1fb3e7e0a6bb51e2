package tui

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"go.uber.org/goleak"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// Texts to edit are files; they go with the tests.
func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "jobq-tui")
	if err == nil {
		err = os.Setenv("TMPDIR", folder)
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(folder)
		os.Exit(code)
	}))
}

// noon is when every test of the UI takes place.
var noon = time.Date(2026, 11, 21, 14, 2, 31, 0, time.UTC)

// fake is a database that holds still, and remembers what was done to it.
type fake struct {
	now       time.Time
	session   monitor.Session
	queues    []monitor.Queue
	minutes   []monitor.Minute
	failures  []monitor.Failure
	silent    []monitor.SilentRuns
	workers   []monitor.Worker
	jobs      []*jobq.Job
	audit     []monitor.AuditEntry
	schedules []monitor.Schedule
	keys      []monitor.Key         // of every queue
	ticks     []monitor.Tick        // of every schedule
	steps     []monitor.Step        // of every job
	err       error                 // of every query
	refusal   error                 // of an edit or a clone, once
	problem   string                // of an edit
	written   []string              // what was done
	saved     string                // what was exported last
	snapshot  operator.BulkSnapshot // of the last action by filter
	// edit is the operator's editor. Nil leaves all as it is.
	edit    func(content string) (string, error)
	filters []jobq.Filter
	count   *int64 // of jobs that match; nil for all
	// undoLimit is how long the last undo could have taken.
	undoLimit time.Duration
}

func newFake() *fake {
	f := &fake{now: noon, session: monitor.Session{Database: "app", Role: "ana", MayAct: true, At: noon, NextExpiry: 24 * time.Second, NextDue: time.Minute}}
	head, paused := noon.Add(-41*time.Second), noon.Add(-12*time.Minute)
	f.queues = []monitor.Queue{
		{Name: "default", Available: 12, Scheduled: 2711, Retrying: 6, Running: 104, Slots: 128, Failed: 4},
		{Name: "email", Available: jobq.CountMax, Scheduled: 1204, Retrying: 61, Running: 64, Slots: 64, Failed: 1180, Cancelled: 31, HeadRunAt: &head},
		{Name: "billing", Available: 311, Scheduled: 187, Slots: 8, PausedAt: &paused, PausedBy: "ana@laptop", PauseReason: "audit"},
	}
	for i := range 60 {
		at := noon.Truncate(time.Minute).Add(time.Duration(i-59) * time.Minute)
		f.minutes = append(f.minutes,
			monitor.Minute{At: at, QueueStats: monitor.QueueStats{Queue: "email", Completed: int64(1000 + 100*i), Failed: int64(i % 7), RunTime: time.Duration(i) * time.Second, WaitTime: time.Second}},
			monitor.Minute{At: at, QueueStats: monitor.QueueStats{Queue: "default", Completed: int64(5000 - 50*i)}})
	}
	f.failures = []monitor.Failure{
		{Queue: "email", Kind: "SendInvoice", Error: "smtp 421 4.7.0 rate limited", Failed: 960, Retrying: 61, First: noon.Add(-19 * time.Minute), Last: noon.Add(-2 * time.Second), Example: 48213911},
		{Queue: "email", Kind: "SendReceipt", Error: "timeout", Failed: 40, First: noon.Add(-12 * time.Second), Last: noon.Add(-5 * time.Second), Example: 48213904},
	}
	f.silent = []monitor.SilentRuns{{Queue: "thumbnails", Kind: "Resize", Runs: 1, Since: noon.Add(-25 * time.Minute), Example: 48213888, Usual: 2100 * time.Millisecond}}
	f.workers = []monitor.Worker{
		{ID: "img-1-881-q2", Slots: map[string]int{"thumbnails": 16}, Running: 4, Version: "1.8.1", Draining: true, StartedAt: noon.Add(-6 * time.Hour), HeartbeatAt: noon.Add(-time.Second)},
		{ID: "web-7-991-k2", Slots: map[string]int{"email": 32}, Running: 3, Version: "1.8.0", Kinds: []string{"SendInvoice"}, StartedAt: noon.Add(-48 * time.Hour), HeartbeatAt: noon.Add(-48 * time.Second)},
	}
	f.schedules, f.ticks = someSchedules()
	f.keys = []monitor.Key{
		{Key: "customer-17", State: monitor.KeyFull, Available: monitor.KeyAvailableMax, Running: 1, OldestRunAt: new(noon.Add(-time.Hour)), Weight: 3, Head: 48213911, HeadState: "running"},
		{Key: "customer-18", State: monitor.KeyHeld, Available: 12, OldestRunAt: new(noon.Add(-3 * time.Minute)), Head: 48213904, HeadState: "retry", HeadUntil: new(noon.Add(42 * time.Second))},
		{Key: "customer-2", State: monitor.KeyThrottled, Available: 4, Running: 1, OldestRunAt: new(noon.Add(-5 * time.Second)), ThrottledUntil: new(noon.Add(12 * time.Second))},
		{Key: "müller & söhne", State: monitor.KeyReady, Available: 3, OldestRunAt: new(noon.Add(-2 * time.Second))},
		{Key: "zoo", State: monitor.KeyPaused, PausedAt: new(noon.Add(-10 * time.Minute)), PausedBy: "ana@laptop", PauseReason: "closed"},
	}
	kinds := []string{"SendInvoice", "SendReceipt", "SendDigest"}
	for i := range 250 {
		started, finished := noon.Add(-time.Duration(3*i+2)*time.Second-112*time.Millisecond), noon.Add(-time.Duration(3*i+2)*time.Second)
		f.jobs = append(f.jobs, &jobq.Job{
			ID: 48213911 - int64(7*i), State: jobq.StateFailed, Queue: "email", Kind: kinds[i%3], Attempts: 5, MaxAttempts: 5, LeaseToken: 5,
			CreatedAt: noon.Add(-time.Hour), RunAt: started, StartedAt: &started, FinishedAt: &finished,
			LastError: "smtp 421 4.7.0 rate limited", Args: json.RawMessage(`{"batch":"2026-09-24","tenant":4411}`), Tags: []string{"eu", "nightly"},
		})
	}
	return f
}

func (f *fake) Session(context.Context) (*monitor.Session, error) { return &f.session, f.err }

func (f *fake) Queues(context.Context) ([]monitor.Queue, error) {
	return slices.Clone(f.queues), f.err
}

func (f *fake) Minutes(context.Context, time.Duration) ([]monitor.Minute, error) {
	return slices.Clone(f.minutes), f.err
}

func (f *fake) Failures(context.Context, monitor.FailureQuery) (monitor.Failures, error) {
	return monitor.Failures{Groups: f.failures}, f.err
}

// Keys has pages of three.
func (f *fake) Keys(_ context.Context, query monitor.KeyQuery) (keys monitor.Keys, err error) {
	for _, key := range f.keys {
		switch {
		case key.Key <= query.After:
		case len(keys.Keys) < 3:
			keys.Keys = append(keys.Keys, key)
		default:
			keys.Next = keys.Keys[2].Key
		}
	}
	return keys, f.err
}

func (f *fake) Silent(context.Context) ([]monitor.SilentRuns, error) { return f.silent, f.err }

func (f *fake) Kinds(context.Context) ([]monitor.Kind, error) { return nil, f.err }

func (f *fake) Workers(context.Context) ([]monitor.Worker, error) { return f.workers, f.err }

func (f *fake) Events(context.Context, int64, int) ([]monitor.Event, error) {
	return []monitor.Event{
		{ID: 2, At: noon.Add(-time.Minute), Type: monitor.EventStalled, Source: "web-2-4711-a8", JobID: 48213890, Queue: "email", Message: "lease expired"},
		{ID: 1, At: noon.Add(-3 * time.Hour), Type: monitor.EventLeadershipAcquired, Source: "web-2-4711-a8"},
	}, f.err
}

func (f *fake) Leader(context.Context) (*monitor.Leader, error) {
	return &monitor.Leader{PID: 4711, Address: "10.0.0.7", Since: noon.Add(-3 * time.Hour)}, f.err
}

// List knows of states by the fields and of ids by the filter, which is all
// that the tests need.
func (f *fake) List(_ context.Context, filter jobq.Filter) (*jobq.Page, error) {
	f.filters = append(f.filters, filter)
	if f.err != nil {
		return nil, f.err
	}
	page := &jobq.Page{}
	after := filter.After == ""
	for _, job := range f.jobs {
		switch {
		case !after:
			after = filter.After == fmt.Sprint(job.ID)
			continue
		case strings.HasPrefix(filter.Match, "id:") && !strings.Contains(filter.Match, fmt.Sprint(job.ID)):
			continue
		case strings.HasPrefix(filter.Match, "state:") && !strings.HasPrefix(filter.Match, "state:"+string(job.State)):
			continue
		}
		if len(page.Jobs) == filter.Limit {
			page.Cursor = fmt.Sprint(page.Jobs[len(page.Jobs)-1].ID)
			break
		}
		row := *job
		row.Args = nil
		page.Jobs = append(page.Jobs, &row)
	}
	return page, nil
}

func (f *fake) Estimate(context.Context, jobq.Filter) (int64, error) { return 0, f.err }

func (f *fake) Count(context.Context, jobq.Filter, int) (int64, error) {
	if f.count != nil {
		return *f.count, f.err
	}
	return int64(len(f.jobs)), f.err
}

func (f *fake) BulkSnapshot(context.Context, jobq.Action, jobq.Filter) (operator.BulkSnapshot, error) {
	return operator.BulkSnapshot{At: f.now, IDMax: f.jobs[0].ID, Count: int64(len(f.jobs))}, f.err
}

func (f *fake) find(id int64) *jobq.Job {
	for _, job := range f.jobs {
		if job.ID == id {
			return job
		}
	}
	return nil
}

func (f *fake) Get(_ context.Context, id int64) (*jobq.Job, error) {
	if f.err != nil {
		return nil, f.err
	}
	job := f.find(id)
	if job == nil {
		return nil, jobq.ErrNotFound
	}
	row := *job
	return &row, nil
}

func (f *fake) Attempts(_ context.Context, id int64) ([]monitor.Attempt, error) {
	job := f.find(id)
	if job == nil || job.StartedAt == nil {
		return nil, f.err
	}
	return []monitor.Attempt{
		{Number: 4, LeaseToken: 4, Outcome: jobq.OutcomeTimedOut, WorkerID: "web-2-4711-a8", StartedAt: job.StartedAt.Add(-time.Minute), FinishedAt: job.StartedAt.Add(-30 * time.Second), Error: "timed out"},
		{Number: 5, LeaseToken: 5, Outcome: jobq.OutcomeFailed, WorkerID: "web-2-4711-a8", StartedAt: *job.StartedAt, FinishedAt: noon, Error: job.LastError, Output: "connect\nsmtp 421\n\x1b[2Jevil\n"},
	}, f.err
}

// Output is a line each time, of the run under way.
func (f *fake) Output(_ context.Context, id int64, after monitor.OutputPiece) ([]monitor.OutputPiece, error) {
	line := fmt.Sprintf("frame %d\x1b[2J\n", after.EndsAt)
	return []monitor.OutputPiece{{LeaseToken: f.find(id).LeaseToken, BeginsAt: after.EndsAt, EndsAt: after.EndsAt + 1, Content: line}}, f.err
}

// Why knows only whether a queue is paused.
func (f *fake) Why(_ context.Context, id int64) (reasons []monitor.Reason, _ error) {
	job := f.find(id)
	for _, queue := range f.queues {
		if job != nil && queue.Name == job.Queue && queue.PausedAt != nil {
			reasons = append(reasons, monitor.Reason{Code: monitor.ReasonQueuePaused, Facts: monitor.ReasonFacts{
				Queue: queue.Name, Since: queue.PausedAt, By: queue.PausedBy, Note: queue.PauseReason,
			}})
		}
	}
	if len(reasons) == 0 {
		reasons = []monitor.Reason{{Code: monitor.ReasonNextInLine}}
	}
	return reasons, f.err
}

// Graph has every job in the middle of the same graph.
func (f *fake) Graph(_ context.Context, id int64) ([]monitor.GraphJob, error) {
	return []monitor.GraphJob{
		{ID: 48213001}, // gone
		{ID: 48213002, Kind: "Load", Queue: "imports", State: jobq.StateCompleted, After: []int64{48213001}},
		{ID: 48213003, Kind: "Load\x1b[2J", Queue: "imports", State: jobq.StateFailed, After: []int64{48213001}},
		{ID: id, Kind: "SendReport", Queue: "email", State: jobq.StateWaiting, After: []int64{48213002, 48213003}},
		{ID: 48214001, Kind: "SendDigest", Queue: "email", State: jobq.StateWaiting, After: []int64{id}},
		{ID: 48214002, Kind: "SendDigest", Queue: "email", State: jobq.StateWaiting, After: []int64{id, 48214001}},
	}, f.err
}

func (f *fake) LastSteps(_ context.Context, _ int64, limit int) ([]monitor.Step, error) {
	return slices.Clone(f.steps[max(len(f.steps)-limit, 0):]), f.err
}

func (f *fake) JobActions(context.Context, int64) ([]monitor.JobAction, error) { return nil, f.err }

func (f *fake) Audit(_ context.Context, before int64, limit int) (entries []monitor.AuditEntry, _ error) {
	for _, entry := range f.audit {
		if (before == 0 || entry.ID < before) && len(entries) < limit {
			entries = append(entries, entry)
		}
	}
	return entries, f.err
}

func (f *fake) Act(_ context.Context, action jobq.Action, targets ...operator.Target) (*operator.Acted, error) {
	acted := &operator.Acted{AuditID: int64(len(f.written) + 1)}
	after := map[jobq.Action]jobq.State{jobq.ActionRequeue: jobq.StateAvailable, jobq.ActionCancel: jobq.StateCancelled, jobq.ActionDelete: jobq.StateDeleted}[action]
	text := string(action)
	for _, target := range targets {
		text += fmt.Sprintf(" %d:%s/%d", target.ID, target.State, target.LeaseToken)
		acted.Jobs = append(acted.Jobs, operator.ActedJob{ID: target.ID, Before: target.State, After: after, Changed: true})
		if job := f.find(target.ID); job != nil {
			job.State = after
		}
	}
	f.written = append(f.written, text)
	return acted, f.err
}

func (f *fake) RequeueWithDependents(ctx context.Context, targets ...operator.Target) (*operator.Acted, error) {
	acted, err := f.Act(ctx, jobq.ActionRequeue, targets...)
	f.written[len(f.written)-1] += " with dependents"
	acted.Dependents = &operator.ActedDependents{Requeued: 2, Refused: 1, Problems: []operator.ActedJob{{ID: 99, Problem: "it also waits for job 98, which has failed: requeue that with it"}}}
	return acted, err
}

func (f *fake) RequeueFromStep(_ context.Context, target operator.Target, step string) (*operator.Acted, int, error) {
	f.written = append(f.written, fmt.Sprintf("requeue %d:%s/%d from %s", target.ID, target.State, target.LeaseToken, step))
	at := slices.IndexFunc(f.steps, func(known monitor.Step) bool { return known.Name == step })
	again := len(f.steps) - at
	f.steps = f.steps[:at]
	changed := operator.ActedJob{ID: target.ID, Before: target.State, After: jobq.StateAvailable, Changed: true}
	return &operator.Acted{AuditID: int64(len(f.written)), Jobs: []operator.ActedJob{changed}}, again, f.err
}

func (f *fake) Edit(_ context.Context, change operator.JobChange, targets ...operator.Target) (*operator.Acted, error) {
	if err := f.refusal; err != nil {
		f.refusal = nil
		return nil, err
	}
	text, _ := json.Marshal(change)
	f.written = append(f.written, fmt.Sprintf("edit %d:%s/%d %s", targets[0].ID, targets[0].State, targets[0].LeaseToken, text))
	state := targets[0].Seen.State
	return &operator.Acted{AuditID: 5, Jobs: []operator.ActedJob{{ID: targets[0].ID, Before: state, After: state, Changed: f.problem == "", Problem: f.problem}}}, f.err
}

func (f *fake) Clone(_ context.Context, id int64, change operator.JobChange) (*operator.Cloned, error) {
	text, _ := json.Marshal(change)
	f.written = append(f.written, fmt.Sprintf("clone %d %s", id, text))
	return &operator.Cloned{AuditID: 6, ID: 48213999, State: jobq.StateAvailable}, f.err
}

func (f *fake) DrainWorker(_ context.Context, id string) (bool, error) {
	f.written = append(f.written, "drain "+id)
	return true, f.err
}

// runEditor is what an editor does to a file.
func (f *fake) runEditor(file *jobedit.File, done func(error) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		content, err := file.Read()
		if err == nil && f.edit != nil {
			var text string
			text, err = f.edit(string(content))
			if writeErr := file.Write([]byte(text)); err == nil {
				err = writeErr
			}
		}
		return done(err)
	}
}

func (f *fake) save(path string, content []byte) error {
	f.saved = path + "\n" + string(content)
	return f.err
}

func (f *fake) Undo(ctx context.Context, id int64) (*operator.Acted, error) {
	if deadline, bounded := ctx.Deadline(); bounded {
		f.undoLimit = time.Until(deadline)
	}
	f.written = append(f.written, fmt.Sprintf("undo %d", id))
	return &operator.Acted{AuditID: 99, Jobs: []operator.ActedJob{{ID: 1, Before: jobq.StateAvailable, After: jobq.StateFailed, Changed: true}}}, f.err
}

func (f *fake) Bulk(_ context.Context, params operator.BulkParams) (operator.BulkProgress, error) {
	text := fmt.Sprintf("bulk %s %s", params.Action, params.Filter.Match)
	if params.Resume > 0 {
		text = fmt.Sprintf("resume %d", params.Resume)
	}
	if params.Max > 0 {
		text += fmt.Sprintf(" max %d", params.Max)
	}
	if params.RatePerSecond > 0 {
		text += fmt.Sprintf(" %d/s", params.RatePerSecond)
	}
	f.written = append(f.written, text)
	f.snapshot = params.Snapshot
	progress := operator.BulkProgress{AuditID: 7, Done: len(f.jobs)}
	params.OnBatch(progress)
	return progress, f.err
}

func (f *fake) PauseQueue(_ context.Context, name, reason string) (operator.QueueActed, error) {
	f.written = append(f.written, "pause "+name+": "+reason)
	return operator.QueueActed{Changed: true, Known: true}, f.err
}

func (f *fake) ResumeQueue(_ context.Context, name string) (operator.QueueActed, error) {
	f.written = append(f.written, "resume "+name)
	return operator.QueueActed{Changed: true, Known: true}, f.err
}

func (f *fake) PauseKey(_ context.Context, queue, key, reason string) (operator.KeyActed, error) {
	f.written = append(f.written, "pause "+queue+"/"+key+": "+reason)
	return operator.KeyActed{AuditID: 41, Changed: true}, f.err
}

func (f *fake) ResumeKey(_ context.Context, queue, key string) (operator.KeyActed, error) {
	f.written = append(f.written, "resume "+queue+"/"+key)
	return operator.KeyActed{Changed: key != "zoo"}, f.err
}

var keyCodes = map[string]rune{
	"enter": tea.KeyEnter, "esc": tea.KeyEscape, "backspace": tea.KeyBackspace, "tab": tea.KeyTab, "up": tea.KeyUp, "down": tea.KeyDown,
	"left": tea.KeyLeft, "right": tea.KeyRight, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp, "home": tea.KeyHome, "end": tea.KeyEnd, "delete": tea.KeyDelete,
}

// golden compares with a file, which `JOBQ_GOLDEN=write go test` writes.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name + ".txt"
	if os.Getenv("JOBQ_GOLDEN") == "write" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	require.Equal(t, string(want), got, "%s: JOBQ_GOLDEN=write go test ./tui writes it anew", path)
}
