package screen

import (
	"testing"

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
