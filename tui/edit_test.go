package tui

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/commandline"
	"github.com/jobq-dev/jobq/tui/overlay"
)

// stoppedBulk is an action by filter that has not come to its end.
var stoppedBulk = monitor.AuditEntry{
	ID: 17, At: noon.Add(-time.Hour), Actor: "ana@laptop via jobq-tui", Action: jobq.ActionRequeue, Target: "state:failed queue:email",
	Done: 3000, Refused: 2, SnapshotAt: &noon, IDMax: 48213911, IDDone: 48200000,
}

// newEditBench has a first job that waits, and an editor.
func newEditBench(edits ...string) *bench {
	b := newBench(120, 35)
	job := b.fake.jobs[0]
	job.State, job.FinishedAt, job.StartedAt, job.Attempts, job.LeaseToken = jobq.StateScheduled, nil, nil, 1, 1
	b.fake.edit = func(content string) (string, error) { return strings.NewReplacer(edits...).Replace(content), nil }
	b.press(Jobs)
	return b
}

// kept is the text that the note on the screen says was not stored.
func kept(t *testing.T, b *bench) string {
	t.Helper()
	require.IsType(t, &overlay.Note{}, b.overlay)
	_, path, found := strings.Cut(b.plain(), "the text is in ")
	require.True(t, found)
	path, _, _ = strings.Cut(path, " ")
	content, err := os.ReadFile(path) // #nosec G304 -- the test's own
	require.NoError(t, err)
	return string(content)
}

// What the operator changes in the editor is shown, asked about and stored,
// with what was seen; and u takes it back.
func TestEdit(t *testing.T) {
	t.Parallel()
	b := newEditBench(`"priority": 0`, `"priority": -5`, `4411`, `4412`)
	b.press(Edit)
	frame := b.plain()
	require.Contains(t, frame, "priority      0 → -5")
	require.Contains(t, frame, `"tenant":4412}`)
	require.Empty(t, b.fake.written)
	b.tick(time.Second)
	b.press(Yes)
	require.Equal(t, []string{`edit 48213911:scheduled/1 {"args":{"batch":"2026-09-24","tenant":4412},"priority":-5}`}, b.fake.written)
	require.Contains(t, b.toast, "edit job 48213911: it is scheduled   "+Undo+" undo")
	require.Zero(t, b.pending)
	require.Contains(t, b.copied(), commandline.Item{Name: "last edit", Text: `jobq edit 48213911 --priority -5 --args '{"batch":"2026-09-24","tenant":4412}'`})
	b.press(Undo)
	require.Equal(t, "undo 5", b.fake.written[1])

	b = newEditBench()
	b.press(Open, Edit)
	require.Contains(t, b.toast, "nothing was changed")
	require.Nil(t, b.overlay)
	require.Zero(t, b.pending)

	b = newEditBench(`"priority": 0`, `"priority": -5`)
	b.press(Edit)
	b.tick(time.Second)
	b.press(No)
	require.Empty(t, b.fake.written)
	require.Zero(t, b.pending)
}

// The command line of an edit makes the same change, whatever a shell makes of
// its values.
func TestEditCommand(t *testing.T) {
	t.Parallel()
	change := operator.JobChange{
		Args: json.RawMessage(`{"it": "is \u0027quoted'"}`), Queue: new("a b"), Priority: new(int16(-1)), RunAt: new(noon.Add(time.Microsecond)),
		MaxAttempts: new(3), Tags: &[]string{"a,b", "c"}, Metadata: json.RawMessage("null"),
	}
	require.Equal(t, `clone 7 --queue 'a b' --priority -1 --run-at 2026-11-21T14:02:31.000001Z --max-attempts 3 --tag 'a,b' --tag c `+
		`--metadata null --args '{"it":"is \u0027quoted'\''"}'`, commandline.Edit("clone", 7, change))
	require.Equal(t, "edit 7 --tag ''", commandline.Edit("edit", 7, operator.JobChange{Tags: &[]string{}}))
}

// While the editor has the terminal, nothing is listened to and nothing asked;
// afterwards both go on.
func TestEditorIsAlone(t *testing.T) {
	t.Parallel()
	b := newEditBench()
	b.env.send.run = func(ctx context.Context) { <-ctx.Done() }
	b.env.send.parent = context.Background()
	b.env.send.begin()
	defer b.env.send.stop()
	alone := false
	b.fake.edit = func(content string) (string, error) {
		b.polling.Need()
		alone = b.env.send.cancel == nil && b.poll() == nil
		return content, nil
	}
	b.press(Edit)
	require.True(t, alone)
	require.NotNil(t, b.env.send.cancel)
	b.polling.Need()
	require.NotNil(t, b.poll())
}

// What cannot be read, or is refused, can be edited again, and is not lost.
func TestEditAgain(t *testing.T) {
	t.Parallel()
	b := newEditBench(`"priority": 0`, `"priority": x`)
	b.press(Edit)
	require.Contains(t, b.plain(), "line 5: invalid character 'x'")
	var shown string
	b.fake.edit = func(content string) (string, error) {
		shown = content
		return strings.ReplaceAll(content, ": x", ": 7"), nil
	}
	b.tick(time.Second)
	b.press(Yes)
	require.True(t, strings.HasPrefix(shown, "#! line 5: invalid"), shown)
	b.fake.refusal = jobq.ErrInvalid
	b.tick(time.Second)
	b.press(Yes)
	require.Contains(t, b.plain(), "that cannot be")
	b.tick(time.Second)
	b.fake.problem = "its priority has changed meanwhile"
	b.press(Yes)
	b.tick(time.Second)
	b.press(Yes)
	require.Contains(t, b.plain(), "edit job 48213911: its priority has changed meanwhile")
	require.Contains(t, kept(t, b), `"priority": 7`)
	require.Len(t, b.fake.written, 1)
	require.Zero(t, b.pending)

	b = newEditBench(`"priority": 0`, `"priority": 1`)
	b.fake.edit = func(content string) (string, error) { return "kept " + content, errors.New("exit status 1") }
	b.press(Edit)
	require.Contains(t, b.plain(), "editor: exit status 1")
	require.Contains(t, kept(t, b), "kept")
	require.Zero(t, b.pending)
	b.press(Down)
	require.NotNil(t, b.overlay, "typed ahead")
	b.tick(time.Second)
	b.press(Down)
	require.Nil(t, b.overlay)
	b.press(Down, Edit)
	require.Contains(t, b.toast, "the job is failed: only one that waits can be changed, "+Clone+" makes a new one")
	b.press(Mark, Mark, Edit)
	require.Contains(t, b.toast, "an editor takes one job")
	b.fake.jobs[0].State = jobq.StateRunning
	b.press(Back, Top, Edit)
	require.Contains(t, b.toast, "the job is running")
	require.Zero(t, b.pending)
}

// A job in any state can be the model of a new one, changed or as it is.
func TestClone(t *testing.T) {
	t.Parallel()
	b := newEditBench("4411", "4412")
	b.press(Down, Clone)
	require.Contains(t, b.plain(), "due now")
	b.tick(time.Second)
	b.press(Yes)
	require.Equal(t, []string{`clone 48213904 {"args":{"batch":"2026-09-24","tenant":4412}}`}, b.fake.written)
	require.Contains(t, b.toast, "cloned job 48213904 into job 48213999: it is available   "+Undo+" undo")
	b = newEditBench()
	b.press(Down, Clone)
	require.Contains(t, b.plain(), "as it is")
	b.tick(time.Second)
	b.press(Yes, Undo)
	require.Equal(t, []string{"clone 48213904 {}", "undo 6"}, b.fake.written)
}

// A worker is asked to drain after a question, and not twice.
func TestDrain(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Workers, Down, Drain)
	require.Contains(t, b.plain(), "stops when those it has are finished: 3 now")
	b.fake.workers = append([]monitor.Worker{{ID: "a-new-one"}}, b.fake.workers...) // the list moves under the question
	b.tick(6 * time.Second)
	b.press(Yes)
	require.Equal(t, []string{"drain web-7-991-k2"}, b.fake.written)
	require.Contains(t, b.toast, "asked worker web-7-991-k2 to drain")
	b.press(Up, Drain)
	require.Contains(t, b.toast, "the worker drains already")
}

// A stopped action by filter goes on from its row in the audit.
func TestResumeBulk(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	ended := stoppedBulk
	ended.ID, ended.EndedAt = 16, &noon
	b.fake.audit = []monitor.AuditEntry{stoppedBulk, ended}
	b.press(Audit)
	require.Contains(t, b.plain(), "not at its end")
	b.press(Resume)
	require.Contains(t, b.plain(), "so far    3,000 changed, 2 left alone")
	b.tick(time.Second)
	b.press(Yes)
	require.Equal(t, []string{"resume 17"}, b.fake.written)
	b.press(Down, Resume)
	require.Contains(t, b.toast, "it has come to its end")
	bounded := stoppedBulk
	bounded.ID, bounded.Max = 18, 5000
	b.fake.audit = []monitor.AuditEntry{bounded}
	b.tick(6 * time.Second)
	b.press(Resume)
	require.Contains(t, b.plain(), "at most   5,000, as it began")
}

// What a screen has loaded is written as JSON lines or CSV.
func TestExport(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{Overview: "queues", Jobs: "jobs", Queues: "queues", Workers: "workers", Audit: "actions"} {
		b := newBench(120, 35)
		b.fake.audit = []monitor.AuditEntry{stoppedBulk}
		b.press(key, Export, "j")
		require.True(t, strings.HasPrefix(b.fake.saved, "jobq-"+want+"-20261121-140231.jsonl\n{"), b.fake.saved)
		b.press(Export, "n")
		b.press(Export, "c")
		require.True(t, strings.HasPrefix(b.fake.saved, "jobq-"+want+"-20261121-140231.csv\n"), b.fake.saved)
		require.Contains(t, b.toast, want+" to jobq-"+want)
	}
	b := newBench(120, 35)
	b.fake.jobs[1].LastError = "a, \"b\"\nc"
	b.press(Jobs, Export, "c")
	lines := strings.Split(b.fake.saved, "\n")
	require.True(t, strings.HasPrefix(lines[1], "id,state,queue,kind,priority,attempts,max_attempts,crashes,lost,max_lost,run_at,created_at,started_at,finished_at,timeout_ns,"), lines[1])
	require.Contains(t, lines[2], `48213911,failed,email,SendInvoice,0,5,5,0,`)
	require.Contains(t, b.fake.saved, "\"a, \"\"b\"\"\nc\"")
	require.Contains(t, lines[2], `"[""eu"",""nightly""]"`)
}

// A list has no args, checkpoint and result, and its export says so; what was
// deleted is not in it.
func TestExportOfList(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Export)
	require.Contains(t, b.plain(), "100 jobs, those that are loaded, to a file here, ")
	require.Contains(t, b.plain(), "without args, checkpoint and result")
	narrow := newBench(80, 24)
	narrow.press(Jobs, Export)
	require.Regexp(t, `without args, +│.*\n.*checkpoint and result`, narrow.plain(), "it is read whole")
	b.press(Leave, Delete)
	b.tick(time.Second)
	b.press(Yes, Export)
	require.Contains(t, b.plain(), "99 jobs, those that are loaded, ")
	b.press("j")
	require.NotContains(t, b.fake.saved, "48213911")
	require.Contains(t, b.fake.saved, "48213904")
	b.press(Down, Open, Export)
	require.Contains(t, b.plain(), "as they are stored")
	b.press("j")
	require.Contains(t, b.fake.saved, `"tenant":4411`)
}
