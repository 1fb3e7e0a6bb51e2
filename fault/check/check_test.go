package check

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

const owner = "web-1-77-0123abcd"

// claim is how a job comes to run, at 0 s under token 1 with a lease of 2 s.
func claim() []row {
	return []row{
		{At: at(0), Op: "insert", Stage: "pending", ID: 1, AttemptsNew: ref(0), Key: ref("a")},
		{At: at(0), Op: "delete", Stage: "pending", ID: 1, Attempts: ref(0), MaxAttempts: ref(5), Txid: 1},
		{
			At: at(0), Op: "insert", Stage: "running", ID: 1, AttemptsNew: ref(0), MaxAttempts: ref(5), Txid: 1, Token: ref[int64](1),
			Owner: ref(owner), ExpiresNew: ref(at(2)), Session: "worker", PID: 500,
		},
	}
}

// end is how it goes from there into a stage, with the attempts counted then.
func end(seconds float64, session, stage, state, text string, attempts int) []row {
	left := row{
		At: at(seconds), Op: "delete", Stage: "running", ID: 1, Attempts: ref(0), MaxAttempts: ref(5), Txid: 2, Token: ref[int64](1),
		Owner: ref(owner), Expires: ref(at(2)), Session: session, PID: 500,
	}
	next := row{
		At: at(seconds), Op: "insert", Stage: stage, ID: 1, AttemptsNew: ref(attempts), MaxAttempts: ref(5), Txid: 2,
		State: ref(state), Error: ref(text), Session: session, PID: 500,
	}
	return []row{left, next}
}

func extend(seconds float64, pid int, progress, checkpoint *string) row {
	return row{
		At: at(seconds), Op: "update", Stage: "running", ID: 1, Attempts: ref(0), AttemptsNew: ref(0), MaxAttempts: ref(5), Token: ref[int64](1),
		Owner: ref(owner), Expires: ref(at(2)), ExpiresNew: ref(at(3)), Session: "worker", PID: pid, ProgressBy: progress, CheckpointBy: checkpoint,
	}
}

// Every check of a job's history lets what is right pass, and sees what is not.
func TestHistory(t *testing.T) {
	orphan := "orphaned by worker restart"
	tests := []struct {
		name    string
		run     Run
		outcome string
		more    []row
		want    string // of the first violation; "": none
	}{
		{name: "a failure", outcome: "failed", more: end(1, "worker", "pending", "", "told to fail by token 1\nmore", 1)},
		{name: "a failure that does not count", outcome: "failed", more: end(1, "worker", "pending", "", "", 0), want: "I4"},
		{name: "a failure of another token", outcome: "failed", more: end(1, "worker", "pending", "", "told to fail by token 3\n", 1), want: "I3"},
		{name: "a release", outcome: "released", more: end(1, "worker", "pending", "", "", 0)},
		{name: "a release that counts", outcome: "released", more: end(1, "worker", "pending", "", "", 1), want: "I4"},
		{name: "given back before it began, and counted", more: end(1, "worker", "pending", "", "", 1), want: "I4"},
		{name: "an extension", more: []row{extend(1, 500, nil, nil)}},
		{name: "an extension by another", more: []row{{
			Op: "update", Stage: "running", ID: 1, Token: ref[int64](1), Owner: ref("web-1-78-0123abcd"), Expires: ref(at(2)), ExpiresNew: ref(at(3)), Session: "worker",
		}}, want: "I3"},
		{name: "an extension from before the claim", run: Run{Late: map[int]time.Time{600: at(-1)}}, more: []row{extend(1, 600, nil, nil)}, want: "I3"},
		{name: "an extension that was late and is in time", run: Run{Late: map[int]time.Time{600: at(1)}}, more: []row{extend(1, 600, nil, nil)}},
		{name: "progress", more: []row{extend(1, 500, ref("1"), ref("1"))}},
		{name: "progress of another token", more: []row{extend(1, 500, ref("2"), nil)}, want: "I3"},
		{name: "a checkpoint of another token", more: []row{extend(1, 500, nil, ref("2"))}, want: "I3"},
		{name: "a reap", outcome: "lost", more: end(3, "janitor", "pending", "", "", 1)},
		{name: "a reap that leaves no attempt", more: end(3, "janitor", "pending", "", "", 1), want: "I4"},
		{name: "an early reap", outcome: "lost", more: end(1, "janitor", "pending", "", "", 1), want: "I7"},
		{name: "a late reap", outcome: "lost", more: end(4, "janitor", "pending", "", "", 1), want: "I6"},
		{name: "a reap after a pause", run: Run{Paused: []Span{{at(1), at(3)}, {at(2.5), at(3.2)}}}, outcome: "lost", more: end(4, "janitor", "pending", "", "", 1)},
		{name: "a reap late after a pause", run: Run{Paused: []Span{{at(1), at(3)}}}, outcome: "lost", more: end(5, "janitor", "pending", "", "", 1), want: "I6"},
		{name: "a recovery", run: Run{Recovers: true, Died: map[int]time.Time{77: at(0.5)}}, more: end(1, "worker2", "pending", "", orphan, 1)},
		{name: "a recovery from one that died later", run: Run{Recovers: true, Died: map[int]time.Time{77: at(1.5)}}, more: end(1, "worker2", "pending", "", orphan, 1), want: "I7"},
		{name: "a recovery from the living", run: Run{Recovers: true}, more: end(1, "worker2", "pending", "", orphan, 1), want: "I7"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.run.Processes, test.run.Janitors, test.run.Bound = map[string]int{"worker": 77, "worker2": 88}, map[string]bool{"janitor": true}, 1500*time.Millisecond
			c := &checker{run: test.run, verdict: &Verdict{}, outcomes: map[[2]int64]string{{1, 1}: test.outcome}}
			c.job(1, append(claim(), test.more...))
			requireFirst(t, c.verdict, test.want)
		})
	}
}

// The ledgers say which runs overlapped, and whether an id is still that of
// the job that was acknowledged.
func TestLedgers(t *testing.T) {
	effect := func(seconds int, what, key string, token int64) Entry {
		return Entry{Mono: time.Duration(seconds) * time.Second, What: what, Key: key, Job: 1, Token: token}
	}
	inTurn := []Entry{effect(1, "begin", "a", 1), effect(2, "beat", "a", 1), effect(3, "begin", "a", 2), effect(4, "end", "a", 2)}
	atOnce := []Entry{effect(1, "begin", "a", 1), effect(3, "begin", "a", 2), effect(4, "beat", "a", 1), effect(5, "end", "a", 2)}
	tests := []struct {
		name          string
		run           Run
		key           string
		effects       []Entry
		want          string
		lost, overlap int
	}{
		{name: "in turn", key: "a", effects: inTurn},
		{name: "at once", key: "a", effects: atOnce, want: "I2", overlap: 1},
		{name: "at once, where processes were stopped", key: "a", effects: atOnce, run: Run{MayOverlap: true}, overlap: 1},
		{name: "completed without an effect", key: "a", want: "I1"},
		{name: "an id that is another job's since", key: "b", effects: inTurn, run: Run{MayLose: true}, lost: 1},
		{name: "the effect of another job of the id", key: "a", effects: []Entry{effect(1, "end", "b", 1)}, run: Run{MayLose: true}, want: "I1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.run.Folder = t.TempDir()
			if err := Append(test.run.Folder, Producers, Entry{What: "ack", Key: test.key, Job: 1}); err != nil {
				t.Fatal(err)
			}
			for _, e := range test.effects {
				if err := Append(test.run.Folder, Effects, e); err != nil {
					t.Fatal(err)
				}
			}
			history := append(claim(), end(1, "worker", "finished", "completed", "", 0)...)
			c := &checker{run: test.run, verdict: &Verdict{}, jobs: map[int64][]row{1: history}}
			if err := c.ledgers(); err != nil {
				t.Fatal(err)
			}
			requireFirst(t, c.verdict, test.want)
			if c.verdict.Forgotten != test.lost || c.verdict.Overlaps != test.overlap {
				t.Fatalf("%d forgotten and %d overlaps, want %d and %d", c.verdict.Forgotten, c.verdict.Overlaps, test.lost, test.overlap)
			}
		})
	}
}

// requireFirst requires a violation of the invariant, or none at all.
func requireFirst(t *testing.T, v *Verdict, want string) {
	t.Helper()
	switch {
	case want == "" && len(v.Violations) > 0:
		t.Fatalf("violations where there are none: %v", v.Violations)
	case want != "" && len(v.Violations) == 0:
		t.Fatalf("no violation of %s", want)
	case want != "" && !strings.HasPrefix(v.Violations[0].String(), want):
		t.Fatalf("%v, want one of %s", v.Violations, want)
	}
}
