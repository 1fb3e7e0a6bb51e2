package measure

import (
	"sync"
	"time"
)

// Series is a rate over time: one value per interval, in units a second.
type Series struct {
	Every  time.Duration `json:"every_ns"`
	Values []float64     `json:"values"`
}

// Rates reads a count at even intervals, in the background, until the function
// returned is called, which returns the rates. The last, shorter interval
// counts only when it is at least half of one.
func Rates(every time.Duration, count func() int64) (stop func() Series) {
	series := Series{Every: every}
	end := make(chan struct{})
	var running sync.WaitGroup
	last, lastAt := count(), time.Now()
	read := func() {
		now, at := count(), time.Now()
		series.Values = append(series.Values, float64(now-last)/at.Sub(lastAt).Seconds())
		last, lastAt = now, at
	}
	running.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				read()
			case <-end:
				if time.Since(lastAt) >= every/2 {
					read()
				}
				return
			}
		}
	})
	return func() Series {
		close(end)
		running.Wait()
		return series
	}
}

// Fit averages neighbours until at most so many values are left.
func (s Series) Fit(values int) Series {
	group := (len(s.Values) + values - 1) / max(values, 1)
	if group <= 1 {
		return s
	}
	fitted := Series{Every: s.Every * time.Duration(group)}
	for first := 0; first < len(s.Values); first += group {
		fitted.Values = append(fitted.Values, mean(s.Values[first:min(first+group, len(s.Values))]))
	}
	return fitted
}

// Ends are the means of the first and the last tenth, which tell whether the
// rate was level.
func (s Series) Ends() (first, last float64) {
	tenth := max(len(s.Values)/10, 1)
	if len(s.Values) < tenth {
		return 0, 0
	}
	return mean(s.Values[:tenth]), mean(s.Values[len(s.Values)-tenth:])
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}
