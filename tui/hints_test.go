package tui

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
)

// footer is the last line of the screen.
func (b *bench) footer() string {
	lines := strings.Split(strings.TrimRight(b.plain(), "\n"), "\n")
	return lines[len(lines)-1]
}

// A hint names a key only where it does something with what is selected, and says what
// it does now.
func TestHintsNameKeysThatDoSomething(t *testing.T) {
	t.Parallel()
	b := newBench(200, 50)
	b.press(Jobs)
	for state, want := range map[jobq.State]string{jobq.StateFailed: "requeue Delete", jobq.StateAvailable: "cancel edit Delete", jobq.StateRunning: "cancel"} {
		job := b.fake.jobs[0]
		job.State, job.FinishedAt, job.StartedAt = state, nil, nil
		b.tick(time.Minute)
		var named []string
		for _, title := range []string{"requeue", "cancel", "edit", "Delete"} {
			if strings.Contains(b.footer(), " "+title+" ") {
				named = append(named, title)
			}
		}
		require.Equal(t, want, strings.Join(named, " "), "%s: %s", state, b.plain())
	}
	b.press(Queues)
	require.Contains(t, b.footer(), "p pause")
	b.press(Down)
	require.Contains(t, b.footer(), "p resume", "it is paused")
	b.press(Workers)
	require.NotContains(t, b.footer(), "drain", "it drains")
	b.press(Down)
	require.Contains(t, b.footer(), "d drain")
	b.fake.audit = []monitor.AuditEntry{{ID: 9, At: noon, Actor: "bob", Action: jobq.ActionPause, Target: "email"}}
	b.press(Audit)
	b.tick(time.Minute)
	require.NotContains(t, b.footer(), "Resume")
	require.NotContains(t, b.footer(), "open")
}

// Tab is named in a prompt where it completes what is typed, and only there.
func TestTabIsNamedWhereItCompletes(t *testing.T) {
	t.Parallel()
	b := newBench(80, 24)
	b.press(Palette)
	require.Contains(t, b.plain(), "tab: complete")
	b.press("esc", Queues, Pause)
	require.NotContains(t, b.plain(), "tab: complete")
	require.Contains(t, b.plain(), "Type the reason, which everybody sees, or nothing.")
}

// A question can be read to its end at every size: its filter, and the command that
// does the same.
func TestQuestionsAreReadWhole(t *testing.T) {
	t.Parallel()
	filter := `state:failed queue:email kind:SendInvoice tag:eu,nightly args.tenant=4411 err:"smtp 421 4.7.0 rate limited"`
	for _, size := range [][2]int{{80, 24}, {120, 35}, {200, 60}} {
		b := newBench(size[0], size[1])
		b.press(Jobs, Filter, filter, Accept, SelectAll, Requeue)
		box := ""
		for _, line := range regexp.MustCompile(`│ (.*?) *│`).FindAllStringSubmatch(b.plain(), -1) {
			box += strings.TrimSpace(line[1])
		}
		whole := strings.ReplaceAll(box, " ", "")
		require.Contains(t, whole, strings.ReplaceAll("filter "+filter, " ", ""), size)
		require.Contains(t, whole, strings.ReplaceAll("requeue --filter '"+filter+"'", " ", ""), size)
		require.Contains(t, whole, "Type250,")
		require.NotContains(t, box, "…")
	}
}
