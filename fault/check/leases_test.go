package check

import (
	"slices"
	"testing"
	"time"
)

// hold is how a claim takes jobs 1 and 2, at 0 s under lease 7 of 2 s.
func hold() []row {
	var rows []row
	for id := range int64(2) {
		rows = append(rows,
			row{At: at(0), Op: "insert", Stage: "pending", ID: id + 1, Token: ref[int64](0), AttemptsNew: ref(0), Key: ref("a")},
			row{At: at(0), Op: "delete", Stage: "pending", ID: id + 1, Token: ref[int64](0), Attempts: ref(0), MaxAttempts: ref(5), Txid: 1})
	}
	rows = append(rows, row{
		At: at(0), Op: "insert", Stage: "lease", ID: 7, Token: ref[int64](7), Owner: ref(owner), ExpiresNew: ref(at(2)), Jobs: []int64{1, 2}, Session: "worker", Txid: 1,
	})
	for slot := range int16(2) {
		rows = append(rows, row{
			At: at(0), Op: "insert", Stage: "run", ID: int64(slot) + 1, Token: ref[int64](7), Slot: ref(slot + 1), AttemptsNew: ref(0), MaxAttempts: ref(5), Session: "worker", Txid: 1,
		})
	}
	return rows
}

// told is a lease that says which of its slots have ended, and when.
func told(session string, slots, ms []int16) row {
	return row{
		At: at(1), Op: "update", Stage: "lease", ID: 7, Token: ref[int64](7), Owner: ref(owner), Expires: ref(at(2)), ExpiresNew: ref(at(2)),
		Slots: slots, Ms: ms, Session: session, Txid: 2,
	}
}

// closed is a lease that goes to the history, with the ends by slot.
func closed(session string, ms ...int16) []row {
	gone := row{At: at(1), Op: "delete", Stage: "lease", ID: 7, Token: ref[int64](7), Owner: ref(owner), Expires: ref(at(2)), Session: session, Txid: 3}
	past := row{At: at(1), Op: "insert", Stage: "past_lease", ID: 7, Token: ref[int64](7), Owner: ref(owner), Ms: ms, Session: session, Txid: 3}
	for slot := range ms {
		past.Slots = append(past.Slots, int16(slot+1)) // #nosec G115 -- few
	}
	return []row{gone, past}
}

// onRow is an end of job 1 on its own row.
func onRow(session string) row {
	return row{
		At: at(1), Op: "update", Stage: "run", ID: 1, Token: ref[int64](7), Attempts: ref(0), AttemptsNew: ref(0), MaxAttempts: ref(5), State: ref("completed"), Session: session, Txid: 2,
	}
}

// What leases say becomes the ends of their jobs, and what they may not say is seen.
func TestLeases(t *testing.T) {
	lost := func(r row) row {
		r.Lost = true
		return r
	}
	extended := told("worker", nil, nil)
	extended.ExpiresNew = ref(at(3))
	taken := told("worker2", nil, nil)
	taken.Owner = ref("web-1-88-0123abcd")
	tests := []struct {
		name      string
		more      []row
		want      string
		completed int
	}{
		{name: "plain ends", more: append([]row{told("worker", []int16{2}, []int16{900})}, closed("worker", 950, 900)...), completed: 2},
		{name: "all at once", more: closed("worker", 900, 900), completed: 2},
		{name: "one on its own row", more: append([]row{onRow("worker"), told("worker", []int16{1}, []int16{-1})}, closed("worker", -1, 900)...), completed: 2},
		{name: "an extension", more: []row{extended}},
		{name: "an extension by another", more: []row{func() row {
			r := extended
			r.Owner = ref("web-1-78-0123abcd")
			return r
		}()}, want: "I3"},
		{name: "another owner", more: []row{taken}, want: "I3"},
		{name: "an end that another tells", more: []row{told("worker2", []int16{2}, []int16{900})}, want: "I3", completed: 1},
		{name: "an end after the lease was lost", more: []row{lost(told("worker", []int16{2}, []int16{900}))}, want: "I3", completed: 1},
		{name: "one end twice", more: []row{told("worker", []int16{2, 2}, []int16{900, 950})}, want: "I4", completed: 1},
		{name: "ended on its own row, and by the lease", more: []row{onRow("worker"), told("worker", []int16{1}, []int16{900})}, want: "I4", completed: 1},
		{name: "ended by the lease, and on its own row", more: []row{told("worker", []int16{1}, []int16{900}), onRow("worker")}, want: "I4", completed: 1},
		{name: "said to have ended on its own row, which it has not", more: []row{told("worker", []int16{1}, []int16{-1})}, want: "I5"},
		{name: "closed while a job runs", more: closed("janitor", -1, 900), want: "I5", completed: 1},
		{name: "closed without the end of a job", more: closed("janitor", -2, 900), want: "I5", completed: 1},
		{name: "forgotten", more: closed("janitor", 900, 900)[:1], want: "I5"},
		{name: "a slot that it does not have", more: []row{told("worker", []int16{3}, []int16{900})}, want: "I4"},
		{name: "claimed twice", more: []row{hold()[5]}, want: "I2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := &checker{verdict: &Verdict{}, jobs: make(map[int64][]row), outcomes: make(map[[2]int64]string), run: Run{
				Processes: map[string]int{"worker": 77, "worker2": 88}, Janitors: map[string]bool{"janitor": true}, Bound: time.Second,
			}}
			c.follow(append(hold(), test.more...))
			for _, id := range []int64{1, 2} {
				c.job(id, c.jobs[id])
			}
			seen := slices.ContainsFunc(c.verdict.Violations, func(v Violation) bool { return v.Invariant == test.want })
			if seen != (test.want != "") || !seen && len(c.verdict.Violations) > 0 {
				t.Fatalf("%v, want one of %q", c.verdict.Violations, test.want)
			}
			if c.completed != test.completed {
				t.Fatalf("%d completed, want %d", c.completed, test.completed)
			}
		})
	}
}
