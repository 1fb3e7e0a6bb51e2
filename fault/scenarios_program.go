package main

import (
	"fmt"
	"strings"
)

// unreadable has kept processes give answers that cannot be read. Each such job
// must end as failed, and good jobs beside them must go on.
func unreadable(l *lab) error {
	if err := l.janitor(); err != nil {
		return err
	}
	// Each reads jobs, a line each, and answers with what its name says.
	programs := map[string]string{
		"not-json":   `while read -r job; do echo '{"id": NaN, "done": true}'; done`,
		"no-id":      `while read -r job; do echo '{"done": true}'; done`,
		"wrong-type": `while read -r job; do id=${job#*'"id":'}; id=${id%%,*}; echo "{\"id\": $id, \"snooze\": 5}"; done`,
		"other-job":  `while read -r job; do echo '{"id": 999999999, "done": true}'; done`,
		"long-line":  `while read -r job; do head -c 3000000 /dev/zero | tr '\0' x; echo; done`,
		"debugging":  `while read -r job; do echo 'here I am'; done`,
	}
	const each = 2
	var args []string
	for name, script := range programs {
		args = append(args, "--run-stream", fmt.Sprintf("%s=sh -c '%s'", name, strings.ReplaceAll(script, "'", `'"'"'`)))
	}
	if _, err := l.worker(args...); err != nil {
		return err
	}
	for range each {
		for name := range programs {
			// Few attempts: after each death of a process, the next start waits longer.
			if _, err := l.pool.Exec(l.ctx, "select jobq.enqueue($1, '{}', max_attempts => 2, backoff_base => '50 ms', backoff_max => '200 ms')", name); err != nil {
				return err
			}
		}
		if _, err := l.enqueue(order{Ms: 10}); err != nil {
			return err
		}
	}
	want := each * len(programs)
	if err := l.awaitNumber(patience, want, "select count(*) from jobq.job where state = 'failed'"); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, each, "select count(*) from jobq.job where state = 'completed'"); err != nil {
		return err
	}
	l.figuref("%d jobs with %d sorts of unreadable answers ended as failed", want, len(programs))
	return nil
}
