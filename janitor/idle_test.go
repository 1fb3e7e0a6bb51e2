package janitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A chore that has found nothing is due a fifth as often, until it finds something.
func TestChoreThatFindsNothingIsDoneRarely(t *testing.T) {
	t.Parallel()
	h := &housekeeper{janitor: &Janitor{config: Config{Mode: Any}}}
	done := time.Now()
	c := &chore{every: time.Minute, done: done}
	require.Equal(t, done.Add(time.Minute), h.dueAt(c))
	c.idle = true
	require.Equal(t, done.Add(5*time.Minute), h.dueAt(c))
	c.again = done.Add(time.Hour) // it has failed
	require.Equal(t, done.Add(time.Hour), h.dueAt(c))
}

// A leader puts off its looks from the start only while it has promoted nothing: it may
// have passed a locked job by, of which nobody tells it.
func TestLookFromTheStartAfterAPromotion(t *testing.T) {
	t.Parallel()
	before := time.Now()
	d := dueJobs{startAt: before.Add(time.Minute)}
	d.mayHaveSkipped(10 * time.Second)
	require.True(t, d.behind)
	require.WithinRange(t, d.startAt, before.Add(10*time.Second), time.Now().Add(10*time.Second))
	soon := d.startAt
	d.mayHaveSkipped(time.Hour) // is later
	require.Equal(t, soon, d.startAt)

	costly := dueJobs{startAt: before.Add(time.Minute), restedAt: before.Add(30 * time.Second)}
	costly.mayHaveSkipped(10 * time.Second)
	require.Equal(t, costly.restedAt, costly.startAt, "looks take no more than their share")
}
