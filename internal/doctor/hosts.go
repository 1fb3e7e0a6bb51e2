package doctor

import (
	"context"
	"fmt"

	"github.com/jobq-dev/jobq/internal/db"
)

// checkHeld finds hosts that somebody has held, and perhaps forgotten.
func checkHeld(ctx context.Context, p *patient) (findings []Finding, err error) {
	rows, err := p.queries.DoctorHeld(ctx, db.Interval(workerSilence), db.Interval(p.limits.PausedFor))
	for _, row := range rows {
		reason := ""
		if row.HoldReason != "" {
			reason = ": " + row.HoldReason
		}
		findings = append(findings, Finding{
			Severity: Warning, Problem: fmt.Sprintf("host %s, with %d live workers, was held %s ago by %s%s", row.Host, row.Workers, seconds(row.HeldSeconds), row.HeldBy, reason),
			Advice: fmt.Sprintf("jobq workers release %s", row.Host),
		})
	}
	return findings, err
}

// checkTroubles finds kinds that a worker does not start, for example since its runs fail while those of others succeed.
func checkTroubles(ctx context.Context, p *patient) (findings []Finding, err error) {
	rows, err := p.queries.DoctorTroubles(ctx, db.Interval(workerSilence))
	for _, row := range rows {
		findings = append(findings, Finding{
			Severity: Warning, Problem: fmt.Sprintf("worker %s does not start jobs of kind %s now: %s. Live workers with the kind: %d", row.Worker, row.Kind, row.Trouble, row.Workers),
			Advice: "look at the machine: a full disk, a missing library, a program that cannot be started; to take it out of work until then: jobq workers hold HOST",
		})
	}
	return findings, err
}
