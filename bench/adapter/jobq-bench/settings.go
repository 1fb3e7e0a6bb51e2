package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	fixedRate   = "fixed"        // PRODUCER_MODE
	depthTarget = "depth-target" // PRODUCER_MODE
	byHarness   = "harness"      // PRODUCER_PACING
)

// settings are what the harness says in the environment.
type settings struct {
	databaseURL, scenario, mode, pacing string
	rateFile                            string // the rate of now, which the harness may change; "" when there is none
	rate, batchMax, depth               int
	workers, payloadBytes, queues       int
	connections, instance, maxAttempts  int
	batchEvery, workTime, sampleEvery   time.Duration
	lease                               time.Duration // 0 leaves jobq's default
	priorities                          []int16       // of the jobs in turn
}

// observes says whether this process reports what is the same for all: one of several does.
func (s settings) observes() bool { return s.instance == 0 }

// readSettings refuses what makes no sense, so that a run does not measure something else than its name says.
func readSettings(getenv func(string) string) (settings, error) {
	var wrong []error
	number := func(name string, byDefault, least int) int {
		text := getenv(name)
		if text == "" {
			return byDefault
		}
		value, err := strconv.Atoi(text)
		if err != nil || value < least {
			wrong = append(wrong, fmt.Errorf("%s=%q: want a whole number of at least %d", name, text, least))
		}
		return value
	}
	ms := func(name string, byDefault, least int) time.Duration {
		return time.Duration(number(name, byDefault, least)) * time.Millisecond
	}
	s := settings{
		databaseURL: getenv("DATABASE_URL"), scenario: cmp.Or(getenv("SCENARIO"), "long_horizon"),
		mode: cmp.Or(getenv("PRODUCER_MODE"), fixedRate), pacing: getenv("PRODUCER_PACING"), rateFile: getenv("PRODUCER_RATE_CONTROL_FILE"),
		rate: number("PRODUCER_RATE", 800, 0), batchMax: number("PRODUCER_BATCH_MAX", 128, 1), depth: number("TARGET_DEPTH", 1000, 1),
		workers: number("WORKER_COUNT", 32, 1), payloadBytes: number("JOB_PAYLOAD_BYTES", 256, 0), queues: number("BENCH_QUEUE_COUNT", 1, 1),
		connections: number("MAX_CONNECTIONS", 20, 4), instance: number("BENCH_INSTANCE_ID", 0, 0), maxAttempts: number("JOB_MAX_ATTEMPTS", 0, 0),
		batchEvery: ms("PRODUCER_BATCH_MS", 10, 1), lease: ms("LEASE_DEADLINE_MS", 0, 1000),
		sampleEvery: time.Duration(number("SAMPLE_EVERY_S", 5, 1)) * time.Second,
	}
	s.workTime = ms("JOB_WORK_MS", 1, 0)
	if s.scenario == "worker_only" { // chaos names the time of a job differently
		s.workTime = ms("JOB_DURATION_MS", 30_000, 0)
	}
	for text := range strings.SplitSeq(cmp.Or(getenv("JOB_PRIORITY_PATTERN"), "0"), ",") {
		priority, err := strconv.ParseInt(strings.TrimSpace(text), 10, 16)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("JOB_PRIORITY_PATTERN: %w", err))
		}
		s.priorities = append(s.priorities, int16(priority))
	}
	if s.databaseURL == "" {
		wrong = append(wrong, errors.New("DATABASE_URL is not set"))
	}
	if s.mode != fixedRate && s.mode != depthTarget {
		wrong = append(wrong, fmt.Errorf("no PRODUCER_MODE %q: there are fixed and depth-target", s.mode))
	}
	return s, errors.Join(wrong...)
}
