package tui

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
)

// task is something that an operator comes to do, with the keys that do it.
type task struct {
	what string
	seen string   // what is to be seen of it, for docs/tui.md
	keys []string // and texts; wait lets a question be read
	// given arranges what the task is about; nil for the failed jobs that are there.
	given  func(b *bench)
	writes []string // what is done to the database
	shows  string   // what is on the screen at the end
}

// wait lets a question be read: it takes no answer at once.
const wait = "wait"

// tasks are those that docs/tui.md has.
func tasks() []task {
	const first = "48213911:failed/5"
	running := func(b *bench) {
		job := b.fake.jobs[0]
		job.State, job.FinishedAt, job.Attempts = jobq.StateRunning, nil, 4
	}
	waiting := func(b *bench) {
		job := b.fake.jobs[0]
		job.State, job.Queue, job.FinishedAt, job.StartedAt, job.Attempts, job.LeaseToken = jobq.StateAvailable, "billing", nil, nil, 0, 0
	}
	editor := func(b *bench) {
		b.fake.edit = func(content string) (string, error) { return strings.ReplaceAll(content, "4411", "4412"), nil }
	}
	audit := func(b *bench) {
		b.fake.audit = []monitor.AuditEntry{
			{ID: 9, At: noon, Actor: "bob", Action: jobq.ActionDrain, Target: "web-7"},
			{ID: 8, At: noon, Actor: "ana", Action: jobq.ActionDelete, JobIDs: []int64{48213904}, Done: 1},
		}
	}
	return []task{
		{what: "See whether anything is wrong, and where", seen: "Each queue in trouble with its reason, which goes on in the next line where there is room and is cut where there is none; the last line counts what is left out. Those that retry are among the scheduled", keys: []string{Overview}, shows: "! email: 1,000 failed in 20m"},
		{what: "Find the failed jobs of a queue", seen: "The jobs, the last ended first, with the error; at 80 columns without the state, which the tab says", keys: []string{Jobs, Filter, "state:failed queue:email", Accept}, shows: "of 250  last ended first"},
		{what: "Find jobs by kind, tag and args", seen: "How many match beside the state that is shown", keys: []string{Jobs, Filter, "kind:Send* tag:eu args.tenant=4411", Accept}, shows: "/ kind:Send* tag:eu args.tenant=4411"},
		{what: "Open a job by its number", seen: "Properties, runs and output; from 120 columns the timeline beside them", keys: []string{Palette, "job 48213890", Accept}, shows: "Jobs ▸ 48213890"},
		{what: "Read why a job failed, and what it wrote", seen: "How it ended and the output, once", keys: []string{Jobs, Open, Output}, shows: "smtp 421 4.7.0 rate limited"},
		{what: "Let a failed job run again", seen: "The row says what it is now, and `u` is named; if it fails again at once, its new error follows within seconds", keys: []string{Jobs, Requeue}, writes: []string{"requeue " + first}},
		{what: "Take that back", seen: "How the job is now, or why it was left alone: it has run meanwhile. Seen with jobs that waited in a paused queue", keys: []string{Jobs, Requeue, Undo}, writes: []string{"requeue " + first, "undo 1"}},
		{
			what: "Let all jobs that failed with one error run again", seen: "The question has the whole filter and the command at every size; then how many were changed, and the group counts them as retrying until they have run", keys: []string{Errors, Requeue, "3", "250", Accept},
			writes: []string{`bulk requeue state:failed queue:email kind:SendInvoice err:="smtp 421 4.7.0 rate limited" age:<1d`},
		},
		{what: "Pause a queue and say why", seen: "Who paused it, when and why, below the list; at 80 columns the list itself may have room only for the mark `‖`", keys: []string{Queues, Pause, "the mail server is away", Accept}, writes: []string{"pause email: the mail server is away"}},
		{what: "Let a paused queue go on", seen: "The hint says resume where the queue is paused", keys: []string{Queues, Down, Pause}, writes: []string{"resume billing"}},
		{what: "See why a job waits", seen: "One line: no worker takes the queue, it is paused, all slots are in use", keys: []string{Jobs, Open}, given: waiting, shows: "waiting    the queue is paused by ana@laptop: audit"},
		{what: "Ask exactly why a job is not running", seen: "Every reason, and what to do about it", keys: []string{Jobs, Why}, given: waiting, shows: "jobq queues resume billing"},
		{what: "See which jobs one waits for, and which wait for it", seen: "A tree: `after` leads to those for which it waits, `then` to those that wait for it; `enter` opens the one under the cursor", keys: []string{Jobs, Tree, Down, Accept}, shows: "Jobs ▸ 48213002"},
		{what: "Find the jobs that have run longest", seen: "In the order of their starts, which is not that of their ids", keys: []string{Jobs, NextTab, NextTab, NextTab, Sort, "3"}, given: running, shows: "running longest first"},
		{what: "Follow the output of a job that runs", seen: "The last lines; a line that is too long is cut", keys: []string{Jobs, Open, Output, End}, given: running, shows: "Output  following"},
		{what: "Cancel a job that runs", seen: "The question says that it cannot be undone; then the row says that it is cancelled", keys: []string{Jobs, Cancel, wait, Yes}, given: running, writes: []string{"cancel 48213911:running/5"}},
		{
			what: "Change the args of a failed job, and run it with them", seen: "What was and what will be, one below the other", keys: []string{Jobs, Clone, wait, Yes}, given: editor,
			writes: []string{`clone 48213911 {"args":{"batch":"2026-09-24","tenant":4412}}`},
		},
		{what: "Delete some jobs", seen: "They stay for a moment, as deleted, and go", keys: []string{Jobs, Mark, Mark, Delete, wait, Yes}, writes: []string{"delete " + first + " 48213904:failed/5"}},
		{what: "Copy a job's id, or the command that does the same", seen: "What was copied, for terminals that copy nothing", keys: []string{Jobs, Copy, "2"}, shows: "copied: 48213911"},
		{what: "Write a list to a file", seen: "The name of the file; only what is loaded is in it, and the question says so", keys: []string{Jobs, Export, "c"}, shows: "wrote 100 jobs to jobq-jobs-20261121-140331.csv"},
		{what: "Take a worker out of service", seen: "Its slots and kinds in full below the list, and in the question how many jobs it runs; then that it drains, and seconds later it is gone", keys: []string{Workers, Down, Drain, wait, Yes}, writes: []string{"drain web-7-991-k2"}},
		{what: "See who did what, and undo one of it", seen: "Who, at every size; the whole note of the selected action below the list, and then that it is undone and by which action", keys: []string{Audit, Down, Undo, wait, Yes}, given: audit, writes: []string{"undo 8"}},
	}
}

// The tasks are done with the keys that docs/tui.md names, at three sizes and
// on both backgrounds.
func TestOperatorTasks(t *testing.T) {
	t.Parallel()
	for _, task := range tasks() {
		t.Run(task.what, func(t *testing.T) {
			t.Parallel()
			for _, size := range [][2]int{{80, 24}, {120, 35}, {200, 60}} {
				for _, ground := range []string{"dark", "light"} {
					b := newBench(size[0], size[1])
					b.setTheme(ground)
					if task.given != nil {
						task.given(b)
					}
					b.tick(time.Minute)
					for _, key := range task.keys {
						if key == wait {
							b.tick(time.Second)
							continue
						}
						b.press(key)
					}
					require.Equal(t, task.writes, b.fake.written, "%v %s\n%s", size, ground, b.plain())
					require.Contains(t, b.plain(), task.shows, "%v %s", size, ground)
				}
			}
		})
	}
}

// docs/tui.md has the tasks with the keys that the registry has for them.
func TestTasksInDocs(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| what you want | keys and texts | what you see |\n|---|---|---|\n")
	for _, task := range tasks() {
		keys := slices.DeleteFunc(slices.Clone(task.keys), func(key string) bool { return key == wait })
		table.WriteString("| " + task.what + " | `" + strings.Join(keys, "` `") + "` | " + task.seen + " |\n")
	}
	const path, begin, end = "../docs/tui.md", "<!-- tasks: JOBQ_GOLDEN=write go test ./tui -->\n", "<!-- /tasks -->"
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(content), begin)
	require.True(t, found)
	had, after, found := strings.Cut(rest, end)
	require.True(t, found)
	if os.Getenv("JOBQ_GOLDEN") == "write" {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o600))
		return
	}
	require.Equal(t, table.String(), had, "JOBQ_GOLDEN=write go test ./tui writes it anew")
}
