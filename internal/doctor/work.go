package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// workerSilence is after how long without a heartbeat a worker does not count as live.
	workerSilence = time.Minute
	// lookJobs is how many jobs in the line of each queue are looked at: DoctorWaiting.
	lookJobs = 200
	// lookDeltas and lookEvents bound what is looked at of what the janitor does.
	lookDeltas, lookEvents = 1_000, 10_000
	// lookBack is how far back losses and errors count.
	lookBack = time.Hour
)

// checkJanitor goes by the work, and by what janitors say: behind a pooler none of them holds a lock.
func checkJanitor(ctx context.Context, p *patient) (findings []Finding, err error) {
	if findings, err = checkUnattended(ctx, p); err != nil {
		return nil, err
	}
	late, err := p.queries.DoctorOverdue(ctx, lookDeltas)
	if err != nil {
		return nil, err
	}
	for _, work := range []struct {
		seconds  float64
		severity Severity
		problem  string
	}{
		{late.LeaseSeconds, Critical, "the lease of a dead worker ended %s ago, and nobody has taken its jobs back"},
		{late.DueSeconds, Critical, "a scheduled job has been due for %s and was not made available"},
		{late.LookSeconds, Critical, "a job ended %s ago for which others wait, and these were not freed"},
		{late.StatSeconds, Warning, "counts of ended jobs have not been summed up for %s"},
	} {
		if db.Seconds(work.seconds) > p.limits.Late {
			findings = append(findings, Finding{
				Severity: work.severity, Problem: fmt.Sprintf(work.problem, seconds(work.seconds)),
				Advice: "run a janitor: every `jobq worker` has one inside unless told otherwise, or `jobq janitor`; `jobq janitor events` says what stops one that runs",
			})
		}
	}
	return findings, nil
}

// checkUnattended finds workers that have run for a while without a janitor anywhere. Its work need not be late yet.
func checkUnattended(ctx context.Context, p *patient) ([]Finding, error) {
	row, err := p.queries.DoctorUnattended(ctx, db.Interval(workerSilence))
	if err != nil || row.Workers == 0 {
		return nil, err
	}
	since := "has ever run"
	if row.Seconds >= 0 {
		since = fmt.Sprintf("has run for %s", seconds(row.Seconds))
	}
	return []Finding{{
		Severity: Critical, Problem: fmt.Sprintf("no janitor %s, and live workers have none inside: %d", since, row.Workers),
		Advice: "run a janitor: `jobq janitor`, or workers without --janitor=off and Config.NoJanitor. Until then retries and scheduled jobs do not start, and jobs of dead workers stay running",
	}}, nil
}

func checkJanitorErrors(ctx context.Context, p *patient) ([]Finding, error) {
	row, err := p.queries.DoctorErrors(ctx, db.Interval(lookBack), lookEvents)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	if row.Errors > 0 {
		findings = append(findings, Finding{
			Severity: Warning, Problem: fmt.Sprintf("janitors could not do their work %d times within the last hour; the last time: %s", row.Errors, row.Last),
			Advice: "`jobq janitor events` has all of them",
		})
	}
	for _, message := range row.Unreapable {
		findings = append(findings, Finding{
			Severity: Critical, Problem: message + "; the janitor passes it by, and its jobs stay running",
			Advice: "correct the row that the error is about, or end its jobs by hand: see docs/troubleshoot.md, \"A lease that cannot be reaped\"",
		})
	}
	return findings, nil
}

// waiting is what waits and may run: what is of a paused queue or kind waits because
// somebody wants it to, or because it crashes workers.
func (p *patient) waiting(ctx context.Context) (rows []db.DoctorWaitingRow, err error) {
	all, err := p.queries.DoctorWaiting(ctx, lookJobs, db.Interval(workerSilence))
	for _, row := range all {
		if !row.Paused {
			rows = append(rows, row)
		}
	}
	return rows, err
}

// atLeast is a count of jobs that may have more behind them in the line.
func atLeast(jobs int64, more bool) string {
	if more {
		return fmt.Sprintf("at least %d", jobs)
	}
	return fmt.Sprint(jobs)
}

func checkQueues(ctx context.Context, p *patient) (findings []Finding, err error) {
	rows, err := p.waiting(ctx)
	type waiting struct {
		jobs   int64
		more   bool
		waited time.Duration
	}
	queues := make(map[string]waiting)
	var names []string
	for _, row := range rows {
		if row.QueueWorkers > 0 {
			continue
		}
		queue, known := queues[row.Queue]
		if !known {
			names = append(names, row.Queue)
		}
		queues[row.Queue] = waiting{queue.jobs + row.Jobs, queue.more || row.More, max(queue.waited, seconds(row.WaitedSeconds))}
	}
	for _, name := range names {
		queue := queues[name]
		severity, since := Critical, "no live worker"
		if queue.waited <= p.limits.Waited { // its workers may be about to start
			if queue.waited <= p.limits.Unserved {
				continue
			}
			served, err := p.queries.QueueServed(ctx, nil, name)
			if err != nil {
				return nil, err
			}
			if served.Served {
				continue
			}
			severity, since = Warning, "no worker has ever had it"
		}
		findings = append(findings, Finding{
			Severity: severity, Problem: fmt.Sprintf("queue %s has %s available jobs, for up to %s, and %s", name, atLeast(queue.jobs, queue.more), queue.waited, since),
			Advice: fmt.Sprintf("start a worker for the queue (jobq worker --queue %s=SLOTS …), or delete its jobs if the name is a mistake", name),
		})
	}
	return findings, err
}

func checkKinds(ctx context.Context, p *patient) (findings []Finding, err error) {
	rows, err := p.waiting(ctx)
	for _, row := range rows {
		waited := seconds(row.WaitedSeconds)
		if row.QueueWorkers == 0 || row.KindWorkers > 0 || waited <= min(p.limits.Waited, p.limits.Unserved) {
			continue
		}
		severity, since := Critical, "no live worker there handles the kind"
		if waited <= p.limits.Waited {
			served, err := p.queries.QueueServed(ctx, []string{row.Kind}, row.Queue)
			if err != nil {
				return nil, err
			}
			if len(served.Kinds) > 0 {
				continue
			}
			severity, since = Warning, "no worker there has ever had the kind"
		}
		findings = append(findings, Finding{
			Severity: severity, Problem: fmt.Sprintf("%s jobs of kind %s wait in queue %s, for up to %s, and %s",
				atLeast(row.Jobs, row.More), row.Kind, row.Queue, waited, since),
			Advice: "deploy a worker that handles the kind, or delete the jobs if the kind is a mistake: `jobq workers` has the kinds that are handled",
		})
	}
	return findings, err
}

// waitedCritical is how many times the limit a job has to wait to be critical.
const waitedCritical = 6

func checkWaiting(ctx context.Context, p *patient) (findings []Finding, err error) {
	rows, err := p.waiting(ctx)
	for _, row := range rows {
		waited := seconds(row.WaitedSeconds)
		if row.KindWorkers == 0 || waited <= p.limits.Waited {
			continue
		}
		severity := Warning
		if waited > waitedCritical*p.limits.Waited {
			severity = Critical
		}
		if row.HeldWorkers == row.KindWorkers {
			findings = append(findings, Finding{
				Severity: severity, Problem: fmt.Sprintf("a job of kind %s has waited in queue %s for %s, and all live workers that handle the kind are held: %d",
					row.Kind, row.Queue, waited, row.KindWorkers),
				Advice: fmt.Sprintf("let the host claim again: jobq workers release %s; or start a worker on another one", row.HeldHost),
			})
			continue
		}
		findings = append(findings, Finding{
			Severity: severity, Problem: fmt.Sprintf("a job of kind %s has waited in queue %s for %s, although live workers handle the kind: %d", row.Kind, row.Queue, waited, row.KindWorkers),
			Advice: fmt.Sprintf("`jobq why %d` says what it waits for; if for a slot: give the queue more slots or workers, and look for jobs that run for long: `jobq queues`, `jobq stats`", row.FirstID),
		})
	}
	return findings, err
}

func checkPaused(ctx context.Context, p *patient) (findings []Finding, err error) {
	rows, err := p.queries.DoctorPaused(ctx, db.Interval(p.limits.PausedFor))
	for _, row := range rows {
		by := ""
		if row.PausedBy != "" {
			by = " by " + row.PausedBy
		}
		name, advice := row.Name, fmt.Sprintf("jobq %ss resume %s", row.What, row.Name)
		if row.Queue != "" {
			name, advice = fmt.Sprintf("%s of queue %s", row.Name, row.Queue), fmt.Sprintf("jobq queues resume %s --key %q", row.Queue, row.Name)
		}
		findings = append(findings, Finding{
			Severity: Warning, Problem: fmt.Sprintf("%s %s was paused %s ago%s", row.What, name, seconds(row.PausedSeconds), by), Advice: advice,
		})
	}
	return findings, err
}

func checkLostLeases(ctx context.Context, p *patient) (findings []Finding, err error) {
	rows, err := p.queries.StatsByQueue(ctx, db.Interval(lookBack))
	for _, row := range rows {
		if row.Lost <= p.limits.LostPerHour {
			continue
		}
		findings = append(findings, Finding{
			Severity: Warning, Problem: fmt.Sprintf("%d runs of queue %s have lost their lease within the last hour", row.Lost, row.Queue),
			Advice: "look for workers that are killed (out of memory, deployments without a drain) or cut off: `jobq janitor events`; if they are only slow, give the queue a longer lease",
		})
	}
	return findings, err
}

func checkVersions(ctx context.Context, p *patient) ([]Finding, error) {
	rows, err := p.queries.DoctorWorkers(ctx, db.Interval(workerSilence))
	if err != nil || len(rows) < 2 {
		return nil, err
	}
	versions := make([]string, 0, len(rows))
	for _, row := range rows {
		versions = append(versions, fmt.Sprintf("%s (%d workers)", row.Version, row.Workers))
	}
	return []Finding{{
		Severity: Note, Problem: "live workers have different versions: " + strings.Join(versions, ", "),
		Advice: "finish the deployment: `jobq workers` names the workers of each version",
	}}, nil
}
