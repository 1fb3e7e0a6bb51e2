package screen

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
)

// A wide screen shows all columns of the jobs at once and whole names; a narrow one
// leaves to the error what the tab says already.
func TestWideScreensShowMore(t *testing.T) {
	t.Parallel()
	job := someJobs(1, jobq.StateFailed)[0]
	job.Queue, job.Kind, job.LeaseOwner, job.Tags = "ledger-synchronisation-eu", "SynchroniseLedgerForAll", "web-7-991-k2", []string{"eu", "nightly"}
	job.LastError = "exit code 1: smtp 421 4.7.0 x"
	show := func(cells int) string {
		s := newStage(t, cells, 20, newJobs)
		s.tell(ShowJobs{Match: "state:failed"})
		s.tell(s.answer(data.Page, &source{jobs: []*jobq.Job{job}}))
		return s.text()
	}
	for _, want := range []string{job.Queue, job.Kind, job.LeaseOwner, "eu,nightly", "PRIO", "CREATED", "TOOK", job.LastError} {
		require.Contains(t, show(200), want)
	}
	require.Contains(t, show(80), "exit code 1: smtp 421 4.7.")
	require.NotContains(t, show(80), "STATE")
	require.Contains(t, show(120), "STATE")
	s := newStage(t, 80, 20, newJobs)
	s.tell(s.answer(data.Page, &source{jobs: []*jobq.Job{job}}))
	require.Contains(t, s.text(), "STATE", "of all states")
	require.Equal(t, "all columns are on the screen", newStage(t, 200, 20, newJobs).Actions()["wide"].Disabled())
}

// many are rows of what a list shows.
func many[T any](count int, row func(i int) T) (rows []T) {
	for i := range count {
		rows = append(rows, row(i))
	}
	return rows
}

// A list that is longer than the screen says which of its rows are on it.
func TestListsSayTheirPosition(t *testing.T) {
	t.Parallel()
	queue := func(i int) monitor.Queue { return monitor.Queue{Name: fmt.Sprintf("q%03d", i), Slots: 1} }
	worker := func(i int) monitor.Worker { return monitor.Worker{ID: fmt.Sprintf("w%03d", i), HeartbeatAt: noon} }
	s := newStage(t, 80, 19, func(kit Kit) Screen { return NewQueues(kit) })
	s.tell(data.Answer{Panel: data.Queues, Value: many(40, queue)})
	require.Contains(t, s.text(), "Queues 1-9 of 40")
	s.do("end")
	require.Contains(t, s.text(), "Queues 32-40 of 40")
	s.tell(data.Answer{Panel: data.Queues, Value: many(3, queue)})
	require.Contains(t, s.text(), "Queues 3 ")
	j := newStage(t, 80, 20, newJobs)
	j.tell(ShowJobs{Match: "state:failed queue:email args.number>=1000 args.number<1040"})
	j.tell(j.answer(data.Page, &source{jobs: someJobs(40, jobq.StateFailed)}))
	j.do("mark")
	require.Contains(t, j.text(), "…  1 marked  1-15 of 40  last ended first", "apart from a long filter")
	w := newStage(t, 80, 19, func(kit Kit) Screen { return NewWorkers(kit) })
	w.tell(data.Answer{Panel: data.Workers, Value: many(40, worker)})
	require.Contains(t, w.text(), "40 workers  0/0 slots  rows 1-4 of 40")
	w.do("end")
	require.Contains(t, w.text(), "rows 37-40 of 40")
}

// So do the actions and the groups of errors.
func TestActionsAndErrorsSayTheirPosition(t *testing.T) {
	t.Parallel()
	a := newStage(t, 80, 19, func(kit Kit) Screen { return NewAudit(kit) })
	entry := func(i int) monitor.AuditEntry {
		return monitor.AuditEntry{ID: int64(100 - i), At: noon, Action: jobq.ActionDelete}
	}
	a.tell(data.Answer{Panel: data.Audit, Value: many(40, entry)})
	require.Contains(t, a.text(), " actions 1-13 of 40\n")
	a.do("end")
	require.Contains(t, a.text(), " actions 28-40 of 40\n")
	e := newStage(t, 80, 19, func(kit Kit) Screen { return NewErrors(kit) })
	group := func(i int) monitor.Failure {
		return monitor.Failure{Queue: "email", Kind: "Send", Error: fmt.Sprint(i), Failed: 2}
	}
	e.tell(data.Answer{Panel: data.Errors, Value: monitor.Failures{Groups: many(40, group)}})
	require.Contains(t, e.text(), "80 jobs failed in 24h; groups 1-7 of 40")
}

// A count or a list that stops at a limit says so.
func TestCountsThatStopSaySo(t *testing.T) {
	t.Parallel()
	a := newStage(t, 80, 19, func(kit Kit) Screen { return NewAudit(kit) })
	ids := many(20, func(i int) int64 { return int64(i + 1) })
	entry := func(i int) monitor.AuditEntry {
		return monitor.AuditEntry{ID: int64(200 - i), At: noon, Action: jobq.ActionDelete, JobIDs: ids, Done: 1000}
	}
	a.tell(data.Answer{Panel: data.Audit, Value: many(data.AuditMax, entry)})
	require.Contains(t, a.text(), "actions 1-13 of 100, the last ones; `jobq audit` lists those before")
	a.do("open")
	require.Contains(t, a.asked[0], request.Tell{Text: "the first 20 of 1,000 jobs"})

	w := newStage(t, 80, 40, func(kit Kit) Screen { return NewWorkers(kit) })
	event := func(i int) monitor.Event { return monitor.Event{ID: int64(i), At: noon, Type: monitor.EventStalled} }
	w.tell(data.Answer{Panel: data.Workers, Value: []monitor.Worker{}}, data.Answer{Panel: data.Events, Value: many(data.EventsMax, event)})
	require.Contains(t, w.text(), "Events, the last 20")
	w.tell(data.Answer{Panel: data.Events, Value: many(3, event)})
	require.NotContains(t, w.text(), "the last")

	s := newStage(t, 80, 20, newJobs)
	s.tell(data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email", Scheduled: 1986}}})
	require.Contains(t, s.text(), "Sched 1.9k", "and not 1k")
}

// Who has done something is on the screen at every width, and so is all that the list
// has cut of the selected action.
func TestAuditSaysWho(t *testing.T) {
	t.Parallel()
	for _, cells := range []int{80, 120, 200} {
		s := newStage(t, cells, 19, func(kit Kit) Screen { return NewAudit(kit) })
		s.tell(data.Answer{Panel: data.Audit, Value: []monitor.AuditEntry{
			{ID: 9, At: noon, Action: jobq.ActionPause, Target: "ledger-synchronisation-eu-west", Actor: "ana@laptop via jobq-tui", Note: "the books are closed until Monday morning"},
			{ID: 8, At: noon, Action: jobq.ActionDelete, JobIDs: []int64{7}, Done: 1, Refused: 2, Actor: "bob@desk via jobq"},
		}})
		for _, want := range []string{"WHO", "ana@laptop via jobq-tui", "bob@desk via jobq", " what      pause ledger-synchronisation-eu-west\n", " note      the books are closed until Monday morning"} {
			require.Contains(t, s.text(), want, cells)
		}
		require.NotRegexp(t, `pause +0`, s.text(), "no jobs were paused")
		s.do("down")
		require.Contains(t, s.text(), " what      delete 7: 1 job changed, 2 left alone")
	}
}

// How far a run is can be read to its end at every size. What there is no room for, such
// as the token, is left out and not cut.
func TestRunningLinesAreReadWhole(t *testing.T) {
	t.Parallel()
	expires := noon.Add(time.Minute)
	job := someJobs(1, jobq.StateRunning)[0]
	started := noon.Add(-201 * time.Second)
	job.StartedAt, job.FinishedAt, job.LeaseOwner, job.LeaseToken, job.LeaseExpiresAt = &started, nil, "vm-23310-bc4aa46d", 357341279027205, &expires
	job.Progress = &jobq.Progress{Percent: 11, Stage: "encode", Message: "101 of 900", At: noon}
	for _, cells := range []int{80, 120, 200} {
		s := newStage(t, cells, 24, func(kit Kit) Screen { return NewJob(kit) })
		s.tell(ShowJob{job.ID}, data.Answer{Panel: data.Job, About: storyQuestion{id: job.ID, output: true}, Value: Story{job: job}})
		lines := strings.Split(s.text(), "\n")[:3]
		text := strings.Join(lines, "\n")
		require.Contains(t, text, " 11%   3m21s elapsed   about 27m06s left", cells)
		require.Contains(t, text, " unless extended")
		require.NotContains(t, text, "…")
		require.Equal(t, cells >= 120, strings.Contains(text, "updated 0s ago"), cells)
		require.Equal(t, cells >= 120, strings.Contains(text, "token 357341279027205"), cells)
		for _, line := range lines {
			require.LessOrEqual(t, len([]rune(line)), cells)
		}
	}
}

// A job's args can be read on its page, also where they are longer than a line.
func TestArgsAreReadWhole(t *testing.T) {
	t.Parallel()
	job := someJobs(1, jobq.StateFailed)[0]
	job.Args = json.RawMessage(`{"customer": 4711, "template": "weekly.html", "sections": ["news", "usage", "billing"], "recipients": ["ana@example.com", "bob@example.com"]}`)
	for _, cells := range []int{80, 120, 200} {
		s := newStage(t, cells, 30, func(kit Kit) Screen { return NewJob(kit) })
		s.tell(ShowJob{job.ID})
		s.tell(data.Answer{Panel: data.Job, About: s.Wants()[0].About, Value: Story{job: job}})
		require.Contains(t, strings.ReplaceAll(joined(s.text()), " ", ""), strings.ReplaceAll(string(job.Args), " ", ""), cells)
	}
}

// An encrypted value is shown by its key, and with the key as plain text: on the job's own page
// alone. What its reader is asked for stays as it is stored, since edits compare with that.
func TestEncryptedValues(t *testing.T) {
	t.Parallel()
	keys, err := keyring.New(keyring.Key{Name: "k7", Secret: make([]byte, 32)})
	require.NoError(t, err)
	job := someJobs(1, jobq.StateCompleted)[0]
	for field, value := range map[jobq.CodecField]*json.RawMessage{jobq.FieldArgs: &job.Args, jobq.FieldResult: &job.Result} {
		about := jobq.CodecValue{Field: field, Kind: job.Kind, JobID: job.ID}
		if field == jobq.FieldArgs {
			about.JobID = 0
		}
		*value, err = keys.Encode(t.Context(), about, json.RawMessage(`{"is": "`+string(field)+` in plain"}`))
		require.NoError(t, err)
	}
	r := &source{jobs: []*jobq.Job{job}}
	for _, codec := range []jobq.Codec{nil, keys} {
		s := newStage(t, 120, 30, func(kit Kit) Screen {
			kit.Codec = codec
			return NewJob(kit)
		})
		s.tell(ShowJob{job.ID})
		s.tell(s.answer(data.Job, r))
		for _, field := range []string{"args", "result"} {
			require.Equal(t, codec != nil, strings.Contains(s.text(), field+" in plain"), s.text())
		}
		require.Equal(t, codec == nil, strings.Contains(s.text(), "encrypted with key k7"))
		require.Equal(t, string(job.Args), string(s.Selected().Job.Args))

		list := newStage(t, 120, 30, func(kit Kit) Screen {
			kit.Codec = codec
			return newJobs(kit)
		})
		list.tell(list.answer(data.Page, r))
		list.tell(data.Answer{Panel: data.Job, About: storyQuestion{id: job.ID}, Value: Story{job: job}})
		require.Contains(t, list.text(), "encrypted with key k7")
		require.NotContains(t, list.text(), "in plain")
	}
}
