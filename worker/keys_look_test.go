package worker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/worker/internal/leases"
	"github.com/jobq-dev/jobq/worker/internal/waking"
)

// A queue that claims without news has its settings read once a second, until it is known to have
// partition keys.
func TestLooksForKeysOnceASecond(t *testing.T) {
	t.Parallel()
	w := &Worker{spreader: waking.NewSpreader(), beatSoon: make(chan struct{}, 1)}
	q := newQueue(w, "default", 1, newShared("default", DefaultPollInterval))
	for range 2 {
		q.lookForKeys()
		require.Len(t, w.beatSoon, 1)
		<-w.beatSoon
		q.lookForKeys()
		require.Empty(t, w.beatSoon, "it has just asked")
		q.keysLookAt -= keysLookEvery
	}
	q.settings.Store(leases.Settings{HasKeys: true})
	q.lookForKeys()
	require.Empty(t, w.beatSoon, "it is known")
}
