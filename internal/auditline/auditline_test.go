package auditline_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/auditline"
	"github.com/jobq-dev/jobq/monitor"
)

// What an action was about and what became of it, for each kind of action.
func TestWords(t *testing.T) {
	t.Parallel()
	stopped := monitor.AuditEntry{Target: "queue:email", IDMax: 9}
	resumed, ended := stopped, stopped
	resumed.Note, ended.EndedAt = "resumed by bob", &time.Time{}
	for _, test := range []struct {
		entry      monitor.AuditEntry
		what, note string
	}{
		{monitor.AuditEntry{JobIDs: []int64{7}}, "7", ""},
		{monitor.AuditEntry{JobIDs: []int64{7, 8, 9}}, "7 8 9", ""},
		{monitor.AuditEntry{JobIDs: []int64{7, 8, 9, 10}}, "7 8 9 ...", ""},
		{monitor.AuditEntry{JobIDs: []int64{7}, Change: json.RawMessage(`{"priority": 2}`)}, `7 {"priority":2}`, ""},
		{monitor.AuditEntry{Target: "email", Note: "from the UI"}, "email", "from the UI"},
		{monitor.AuditEntry{JobIDs: []int64{7}, UndoneBy: 4}, "7", "undone by 4"},
		{monitor.AuditEntry{Target: "email", UndoneBy: 4, Note: "books are closed"}, "email", "undone by 4; books are closed"},
		{monitor.AuditEntry{JobIDs: []int64{7}, Undoes: 3, Note: "requeue"}, "7", "undoes requeue 3"},
		{stopped, "queue:email", "not at its end"},
		{resumed, "queue:email", "not at its end, resumed by bob"},
		{ended, "queue:email", ""},
		{monitor.AuditEntry{}, "", ""},
	} {
		require.Equal(t, test.what, auditline.What(test.entry))
		require.Equal(t, test.note, auditline.Note(test.entry))
	}
	evil := monitor.AuditEntry{Target: "a\x1b[2J\nb", Note: "\x1b]0;c\a", Change: json.RawMessage(`{"queue": "\u001b[2J"}`)}
	require.NotContains(t, auditline.What(evil)+auditline.Note(evil), "\x1b")
	require.NotContains(t, auditline.What(evil), "\n")
}
