package tui

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/commandline"
)

// The keys of a queue open from its row, a page at a time: the next one below the last row, the
// one before above the first. Jobs of a key open from there, and esc leads back.
func TestKeysOfAQueue(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Queues, Keys)
	require.Contains(t, b.plain(), "Keys of email 3")
	require.Regexp(t, `> customer-17 +full +1,000\+ +1 +1h +3 job 48213911 runs`, b.plain())
	require.Regexp(t, `customer-18 +held +12 +0 +3m +job 48213904 waits for its retry in 42s`, b.plain())
	require.Regexp(t, `customer-2 +throttled +4 +1 +5s +may start in 12s`, b.plain())
	require.Contains(t, b.plain(), "more follow below the last one")
	b.press(Down, Open)
	require.Equal(t, `queue:email partition:"customer-18"`, b.match())
	b.press(Queues)
	require.Contains(t, b.plain(), "> customer-18", "where it was")
	b.press(Down)
	require.NotContains(t, b.plain(), "müller")
	b.press(Down)
	require.Regexp(t, `behind customer-2\n`, b.plain())
	require.Regexp(t, `> müller & söhne +ready +3 +0 +2s`, b.plain())
	require.Regexp(t, `zoo +paused +0 +0 +- +paused 10m ago by ana@laptop: closed`, b.plain())
	b.press(Open)
	require.Equal(t, `queue:email partition:"müller & söhne"`, b.match())
	b.press(Queues, Up)
	require.Contains(t, b.plain(), "> customer-2 ", "the last row of the page before")
	b.press(Back)
	require.Contains(t, b.plain(), "Queues 3")

	b.fake.keys = nil
	b.press(Keys)
	b.tick(time.Minute)
	require.Contains(t, b.plain(), "no job with a partition key is available or runs, and none is paused or has a weight")
	b.press(Open)
	require.Contains(t, b.plain(), "no key is selected")
}

// A key is paused with a reason, and goes on, from its row; where changes are confirmed, after a question.
func TestPauseAKey(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Queues, Keys, Pause, "does not pay", Accept)
	require.Equal(t, []string{"pause email/customer-17: does not pay"}, b.fake.written)
	require.Contains(t, b.plain(), "paused key customer-17 of queue email")
	b.press(Undo)
	require.Contains(t, b.fake.written, "undo 41")
	require.Contains(t, b.copied(), commandline.Item{Name: "pause key", Text: "jobq queues pause email --key customer-17"})
	b.press(Down, Down, Down, Down)
	require.Contains(t, b.plain(), "> zoo")
	b.press(Pause)
	require.Equal(t, "resume email/zoo", b.fake.written[2])
	require.Contains(t, b.plain(), "resume: key zoo of queue email was so already")
	b.fake.err = errors.New("no luck")
	b.press(Pause)
	require.Contains(t, b.plain(), "resume: no luck")
}

// A queue that goes while its keys are open leaves an empty page, and an answer about another
// page is no answer.
func TestKeysOfAQueueThatGoes(t *testing.T) {
	t.Parallel()
	b := newBench(80, 24)
	b.press(Queues, Keys)
	b.fake.queues, b.fake.keys = b.fake.queues[:1], nil
	b.tick(time.Minute)
	require.Contains(t, b.plain(), "Keys of email")
	require.Contains(t, b.plain(), "no job with a partition key")
	b.press(Pause)
	require.Contains(t, b.plain(), "no key is selected")
	b.fake.keys = []monitor.Key{{Key: "late", State: monitor.KeyReady, Available: 1, OldestRunAt: new(noon)}}
	b.press(Back, Keys)
	b.tick(time.Minute)
	require.Contains(t, b.plain(), "Keys of default")
	require.Contains(t, b.plain(), "> late")
}
