package format

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var errPerSecond = errors.New("jobs a second, such as 100/s")

// PerSecond is how many jobs a second an action by filter is to change.
func PerSecond(jobs int) string { return fmt.Sprintf("%d/s", jobs) }

// ParsePerSecond reads 100/s, or just 100: 1 at least.
func ParsePerSecond(text string) (int, error) {
	jobs, err := strconv.Atoi(strings.TrimSuffix(text, "/s"))
	if err != nil || jobs < 1 {
		return 0, errPerSecond
	}
	return jobs, nil
}
