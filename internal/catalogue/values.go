package catalogue

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/when"
)

// none is the value that takes a setting away.
const none = "none"

// values are what a setting can be: what people are told of them, and how one is read and written.
type values[T comparable] struct {
	says   string
	read   func(text string) (value T, ok bool)
	format func(value T) string
}

// parse reads one, or says what it must be.
func (v values[T]) parse(text string) (T, error) {
	value, ok := v.read(text)
	if !ok {
		return value, fmt.Errorf("must be %s, not %.50q", v.says, text)
	}
	return value, nil
}

// orNone also takes the word none, which is the zero value.
func (v values[T]) orNone() values[T] {
	var zero T
	return values[T]{
		says: v.says + ", or none",
		read: func(text string) (T, bool) {
			if text == none {
				return zero, true
			}
			return v.read(text)
		},
		format: func(value T) string {
			if value == zero {
				return none
			}
			return v.format(value)
		},
	}
}

func counts() values[int] {
	return values[int]{
		says: "a number of at least 1",
		read: func(text string) (int, bool) {
			count, err := strconv.Atoi(text)
			return count, err == nil && count >= 1
		},
		format: strconv.Itoa,
	}
}

func durations() values[time.Duration] {
	return values[time.Duration]{
		says: "a duration such as 90s, 10m or 2d",
		read: func(text string) (time.Duration, bool) {
			duration, err := when.ParseDuration(text)
			return duration, err == nil && duration > 0
		},
		format: when.FormatDuration,
	}
}

func rates() values[jobq.Rate] {
	return values[jobq.Rate]{
		says: "like 100/s, 5/m, 1000/h or 10/30s",
		read: func(text string) (rate jobq.Rate, ok bool) {
			var err error
			rate.Jobs, rate.Period, err = when.ParseRate(text)
			return rate, err == nil
		},
		format: formatRate,
	}
}

// formatRate leaves out a 1, as in 100/s.
func formatRate(rate jobq.Rate) string {
	return strconv.Itoa(rate.Jobs) + "/" + oneUnit.ReplaceAllString(when.FormatDuration(rate.Period), "$1")
}

// oneUnit is a duration of one unit, such as 1s.
var oneUnit = regexp.MustCompile("^1([a-z])$")

// defaultBurst is that of a rate which names none: as many as in a tenth of a second, as jobq.Rate says.
func defaultBurst(rate jobq.Rate) int {
	return max(int(math.Ceil(float64(rate.Jobs)*0.1/rate.Period.Seconds())), 1)
}

func separators() values[string] { return texts(8) }

// texts are of up to length characters.
func texts(length int) values[string] {
	return values[string]{
		says: fmt.Sprintf("1 to %d characters", length),
		read: func(text string) (string, bool) {
			count := utf8.RuneCountInString(text)
			return text, count >= 1 && count <= length
		},
		format: func(text string) string { return text },
	}
}

// priorities are lower for what is more urgent.
func priorities() values[int16] {
	return values[int16]{
		says: fmt.Sprintf("a whole number, %d to %d", math.MinInt16, math.MaxInt16),
		read: func(text string) (int16, bool) {
			priority, err := strconv.ParseInt(text, 10, 16)
			return int16(priority), err == nil // #nosec G115 -- of 16 bits
		},
		format: func(priority int16) string { return strconv.Itoa(int(priority)) },
	}
}

func truths() values[bool] {
	words := []string{"no", "yes", "false", "true"}
	return values[bool]{
		says: "yes or no",
		read: func(text string) (bool, bool) {
			at := slices.Index(words, text)
			return at%2 == 1, at >= 0
		},
		format: func(is bool) string {
			if is {
				return "yes"
			}
			return "no"
		},
	}
}

// oneOf are words; an empty one is written none.
func oneOf[T ~string](words ...T) values[T] {
	names := make([]string, len(words))
	for i, word := range words {
		if names[i] = string(word); word == "" {
			names[i] = none
		}
	}
	return values[T]{
		says: strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1],
		read: func(text string) (T, bool) {
			at := slices.Index(names, text)
			if at < 0 {
				return "", false
			}
			return words[at], true
		},
		format: func(word T) string {
			if word == "" {
				return none
			}
			return string(word)
		},
	}
}
