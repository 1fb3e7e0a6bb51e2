package janitor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/janitor"
)

// An idle janitor asks whether its chores would find something, in one statement for all
// that are done often, and does none of them. What comes up is still found.
func TestIdleChoresAreNotDone(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f, questions := setUpTraced(t, nil)
			f.start(janitor.Config{Mode: mode, ScanInterval: time.Hour}, janitor.ChoreTimes(0, 0, 10*time.Millisecond), janitor.HistoryStands(time.Hour))
			require.Eventually(t, func() bool { return questions.times("ChoresFind") > 30 }, patience, time.Millisecond)
			require.Zero(t, questions.times("StatRollUp"))
			require.Zero(t, questions.times("WorkerPrune"))
			require.Zero(t, questions.times("OutputPrune"))
			require.Zero(t, questions.times("WaitersForget"))
			require.Zero(t, questions.times("EventWakeRest"))
			require.Equal(t, 1, questions.times("HistoryAnalyze"), "of what nothing is known yet")

			f.exec(`insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
				values (date_trunc('minute', now()), 'q', 'k', 1, 0, 0, 0, 0, 0, 0)`)
			f.exec("insert into jobq.worker (id, pid, hostname, version, queues, kinds, heartbeat_at) values ('gone', 1, 'h', 'v', '{}', '{}', now() - interval '1 hour')")
			f.exec("insert into jobq.waiter (id, expires_at) values (7, now() - interval '1 s')")
			f.exec("insert into jobq.output (job_id, lease_token, begins_at, ends_at, content, written_at) values (1, 1, 0, 1, 'x', now() - interval '1 hour')")
			f.exec("insert into jobq.emitted (name, emitted_at, woken_to, payload) values ('e', now(), 0, '1')")
			f.finished(2_000, "1 hour", false)
			f.exec("analyze jobq.run")
			for _, table := range []string{"stat_delta", "worker", "waiter", "output"} {
				f.eventually("select count(*) from jobq."+table, 0)
			}
			f.eventually("select count(*) from jobq.emitted where woken_to is not null", 0)
			require.Eventually(t, func() bool { return questions.times("HistoryAnalyze") > 1 }, patience, time.Millisecond, "it has grown")
		})
	}
}

// Chores are done as before when the question for what they would find gets no answer,
// such as when somebody has a table locked that it asks for.
func TestChoresWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	f, questions := setUpTraced(t, nil)
	f.exec("alter table jobq.waiter rename to elsewhere")
	f.exec(`insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
		values (date_trunc('minute', now()), 'q', 'k', 1, 0, 0, 0, 0, 0, 0)`)
	f.start(janitor.Config{}, janitor.ChoreTimes(0, 0, 10*time.Millisecond))
	f.eventually("select count(*) from jobq.stat_delta", 0)
	require.Eventually(t, func() bool { return questions.times("OutputPrune") > 5 }, patience, time.Millisecond)
}
