package when

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseRate reads how many in how much time: "100/s", "5/m", "1000/h" or "10/30s". Both are
// above 0.
func ParseRate(text string) (count int, period time.Duration, err error) {
	number, per, ok := strings.Cut(text, "/")
	if count, err = strconv.Atoi(strings.TrimSpace(number)); err == nil && ok {
		if per = strings.TrimSpace(per); per != "" && (per[0] < '0' || per[0] > '9') {
			per = "1" + per
		}
		period, err = ParseDuration(per)
	}
	if err != nil || !ok || count < 1 || period <= 0 {
		return 0, 0, fmt.Errorf("must be like 100/s, 5/m, 1000/h or 10/30s, not %.50q", text)
	}
	return count, period, nil
}
