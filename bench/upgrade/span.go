package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// span is a time with a beginning and an end.
type span struct{ began, ended time.Time }

func (s span) took() time.Duration { return s.ended.Sub(s.began) }

func (s span) overlaps(other span) bool {
	return !s.ended.Before(other.began) && !other.ended.Before(s.began)
}

// longest is the longest of the spans that lie in the window, be it in part; 0 where there is none.
func longest(spans []span, window span) time.Duration {
	var most time.Duration
	for _, s := range spans {
		if s.overlaps(window) {
			most = max(most, s.took())
		}
	}
	return most
}

const (
	// logged is how long a step of a statement takes that the server logs.
	logged = 5 * time.Millisecond
	// logPrefix begins each of the server's lines: when, by which process, for which program.
	logPrefix = "%n [%p] %a|"
)

// Steps of the statements that claim jobs and store their ends, by the names that sql/queries gives them. A statement that
// waits for a table does so in any of its steps: when it is parsed, bound or executed.
var (
	claims = []string{"JobClaim", "LaneClaim", "LaneTake"}
	ends   = []string{"LeaseEnd", "RunEnd"}
)

// serverLog is what the server's log says.
type serverLog struct {
	slow   map[string][]span // by the statement's name
	errors []string          // lines
}

var (
	slowLine  = regexp.MustCompile(`^([0-9.]+) \[\d+\] ([^|]*)\|LOG:  duration: ([0-9.]+) ms  (?:parse|bind|execute) [^:]*: -- name: (\w+)`)
	errorLine = regexp.MustCompile(`^[0-9.]+ \[\d+\] [^|]*\|(ERROR|FATAL|PANIC):`)
	// goneLine is of a session whose program has ended while the server was sending a notification.
	goneLine = regexp.MustCompile(`FATAL:  connection to client lost$`)
)

// readServerLog reads the steps of statements that took long, and errors.
func readServerLog(log io.Reader) (serverLog, error) {
	all := serverLog{slow: map[string][]span{}}
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadString('\n')
		if slow := slowLine.FindStringSubmatch(line); slow != nil {
			s, err := slowSpan(slow[1], slow[3])
			if err != nil {
				return all, fmt.Errorf("%q: %w", line, err)
			}
			all.slow[slow[4]] = append(all.slow[slow[4]], s)
		} else if errorLine.MatchString(line) && !goneLine.MatchString(strings.TrimSpace(line)) {
			all.errors = append(all.errors, strings.TrimSpace(line))
		}
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// slowSpan is what ended at a time, in seconds since 1970, and took so many milliseconds.
func slowSpan(seconds, milliseconds string) (span, error) {
	at, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return span{}, err
	}
	took, err := time.ParseDuration(milliseconds + "ms")
	if err != nil {
		return span{}, err
	}
	ended := time.UnixMicro(int64(at * 1e6))
	return span{began: ended.Add(-took), ended: ended}, nil
}

// of are the steps of the statements with these names.
func (l serverLog) of(names []string) []span {
	var all []span
	for _, name := range names {
		all = append(all, l.slow[name]...)
	}
	return all
}
