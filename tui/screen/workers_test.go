package screen

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
)

// Of a worker's kinds, it is seen which have slots of their own, and how many.
func TestWorkerShowsKindSlots(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 30, func(kit Kit) Screen { return NewWorkers(kit) })
	s.tell(data.Answer{Panel: data.Workers, Value: []monitor.Worker{
		{ID: "w", Slots: map[string]int{"email": 4}, Kinds: []string{"Resize", "Send"}, KindSlots: map[string]int{"Resize": 2}, HeartbeatAt: noon},
	}})
	require.Contains(t, s.text(), " slots     email 4\n kinds     Resize 2, Send\n")
}

// A worker whose host is held says so in the list, in its details with who holds it and why, and in words; and so does one that
// leaves a kind to others.
func TestHeldWorkers(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 30, func(kit Kit) Screen { return NewWorkers(kit) })
	s.tell(data.Answer{Panel: data.Workers, Value: []monitor.Worker{{
		ID: "gpu-3-1-a", Hostname: "gpu-3", Slots: map[string]int{"q": 1}, Kinds: []string{"Fit"}, HeartbeatAt: noon, StartedAt: noon,
		Held:     &monitor.Held{By: "ana", Reason: "bad\x1b[2Jdisk", Since: noon.Add(-time.Hour)},
		Programs: map[string]monitor.Programs{"Fit": {Trouble: "it rests here"}, "Other": {}},
	}, {ID: "free", HeartbeatAt: noon, StartedAt: noon}}})
	require.Contains(t, s.text(), "gpu-3-1-a held")
	require.Contains(t, s.text(), "1 held")
	require.Contains(t, s.text(), "held      gpu-3 is held by ana, for 1h: bad␛[2Jdisk")
	require.Contains(t, s.text(), "waits     Fit: it rests here")
	require.NotContains(t, s.text(), "free held")
	told := strings.Join(s.Screen.(*WorkerList).Told(), "\n")
	require.Contains(t, told, "held gpu-3 is held by ana, for 1h: bad")
	require.Contains(t, told, "waits Fit: it rests here")
}
