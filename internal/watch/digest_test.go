package watch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/watch"
)

// A digest arrives as it was sent.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	digest := &watch.Digest{
		Worker: "web-1-2-ab", Sequence: 7, AtMs: 1790000000000, Queues: map[string]watch.Count{"email": {Completed: 120, Failed: 3, Others: 1}},
		Events: []watch.Event{{ID: 48213911, Token: 7, State: "failed", Attempts: 5, Queue: "email", Kind: "SendInvoice", TookMs: 112, Percent: 63, Stage: "encode"}},
	}
	got, err := watch.Parse(digest.Encode())
	require.NoError(t, err)
	require.Equal(t, digest, got)
}

// However much there is to say, and however long the names are, a digest fits
// into a notification, and says that there was more.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	digest := &watch.Digest{Worker: strings.Repeat("w", 300), Queues: make(map[string]watch.Count)}
	for i := range 200 {
		name := strings.Repeat("ä\x01", 60) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		digest.Queues[string(rune('a'+i%26))+string(rune('a'+i/26))+name] = watch.Count{Completed: 1 << 39}
		digest.Events = append(digest.Events, watch.Event{ID: 1 << 50, State: "failed", Queue: name, Kind: name, Stage: name})
	}
	text := digest.Encode()
	require.LessOrEqual(t, len(text), 7500)
	got, err := watch.Parse(text)
	require.NoError(t, err)
	require.True(t, got.More)
}

// Anything may be sent on the channel: it is a digest or an error.
func FuzzParse(f *testing.F) {
	f.Add(`{"v":1,"p":"w","n":1,"t":5,"q":{"a":[1,2,3]},"j":[[1,"failed",1,"q","k",5,0,"",1]]}`)
	f.Add(`no digest`)
	f.Add(`{"v":1,"j":[[1e300,"x",1,"q","k",5,0,"",1]]}`)
	f.Fuzz(func(t *testing.T, text string) {
		digest, err := watch.Parse(text)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(digest.Events), watch.EventsMax)
		again, err := watch.Parse(digest.Encode())
		require.NoError(t, err)
		require.LessOrEqual(t, len(again.Events), len(digest.Events))
	})
}
