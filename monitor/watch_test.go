package monitor_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/watch"
	"github.com/jobq-dev/jobq/monitor"
)

// Who watches only the connection hears digests without harm. Method: another
// watcher, who began later, says that the digest has arrived.
func TestWatchWithoutDigests(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(context.Background())
	client := jobtest.Client(t)
	heard, ended := make(chan struct{}, 10), make(chan error, 2)
	start := func(config monitor.WatchConfig) {
		connected := make(chan struct{}, 10)
		config.Logger, config.OnConnect = slog.New(slog.DiscardHandler), func() { connected <- struct{}{} }
		go func() { ended <- monitor.New(client).Watch(ctx, config) }()
		<-connected
	}
	start(monitor.WatchConfig{})
	start(monitor.WatchConfig{OnDigest: func(*monitor.Digest) { heard <- struct{}{} }})
	digest := &watch.Digest{Worker: "w", Sequence: 1}
	for range 3 {
		_, err := client.Pool().Exec(ctx, "select jobq.tell($1, null)", digest.Encode())
		require.NoError(t, err)
		<-heard
	}
	stop()
	for range 2 {
		require.NoError(t, <-ended)
	}
}
