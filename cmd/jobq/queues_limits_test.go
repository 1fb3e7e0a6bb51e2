package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
)

// What --rate takes is read, and written again in the same words.
func TestQueueRates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]jobq.Rate{
		"100/s":  {Jobs: 100, Period: time.Second},
		"5/m":    {Jobs: 5, Period: time.Minute},
		"1000/h": {Jobs: 1000, Period: time.Hour},
		"10/30s": {Jobs: 10, Period: 30 * time.Second},
	} {
		rate, err := parseQueueRate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, rate, text)
		require.Equal(t, text, format.QueueRate(&rate))
	}
	for _, text := range []string{"", "100", "/s", "100/", "-1/s", "0/s", "1.5/s", "100/second/s", "1/-1s"} {
		_, err := parseQueueRate(text)
		require.ErrorContains(t, err, "--rate must be like", text)
	}
}
