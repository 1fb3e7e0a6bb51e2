package janitor

import (
	"context"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// announcedShare is how many scan intervals an announcement holds. The janitor makes the next one when
	// half of it is over, so that it does not end before the next look, even if the looks take long.
	announcedShare = 4
	// recheckMin is after how long the janitor asks whether transactions are still open that may have
	// added jobs without a notification. The time doubles with each answer, up to stuckDelayMax.
	recheckMin = 2 * time.Millisecond
)

// asleep is what the leader has announced about its sleep: inserts of jobs that are due later do not
// notify it (sleep_announce in sql/schema). For example, with a scan interval of 10 s:
//
//	12:00:00.000  it announces that it looks again by 12:00:40; transaction 7 is open, which
//	              has seen an earlier announcement. It finds no job, and sleeps until 12:00:10
//	12:00:00.002  7 has ended: it looks again, and finds a job that is due at 12:00:04
//	12:00:03.000  a job is added that is due at 12:01: it sleeps on
//	12:00:20.000  half of the time is over: a look renews the announcement, until 12:01:00. Of a job that
//	              was added meanwhile, because of the earlier one, the look may not know; but that is
//	              due after 12:00:40, and the next look comes before
//	12:00:24.000  it makes the job available. Others follow in quick succession, so that it looks
//	              all the time, and announces nothing any more: no insert notifies
type asleep struct {
	until   time.Time // when the announcement ends
	renews  bool      // the next look is to renew it
	busy    bool      // the last look found that the next is to follow at once
	open    []string  // transactions that may have added jobs without a notification
	recheck time.Duration
}

// lookAhead is next, by a janitor that announces until when it sleeps, if it listens. The announcement
// comes before the look, which then finds what was added without a notification. While the one before holds
// for longer than until the next look, the look itself renews it.
func (p *passes) lookAhead(ctx context.Context) (next db.NextDueRow, err error) {
	for {
		interval, holds := p.janitor.config.ScanInterval, time.Until(p.asleep.until)
		isOver := p.listens && holds < announcedShare/2*interval
		p.asleep.renews = isOver && !p.asleep.busy && holds > interval*3/2
		if isOver && !p.asleep.busy && !p.asleep.renews {
			if err := p.announce(ctx); err != nil {
				return next, err
			}
		}
		wasBusy := p.asleep.busy
		next, err = p.next(ctx)
		p.asleep.renews = false
		p.asleep.busy = next.Ms <= stuckDelay.Milliseconds()
		if err != nil || !isOver || !wasBusy || p.asleep.busy {
			return next, err
		}
	}
}

func (p *passes) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	sent := time.Now()
	open, err := p.queries.SleepAnnounce(ctx, p.sleepHold().Milliseconds())
	if err != nil {
		return err
	}
	p.announced(sent, open)
	return nil
}

// renewed records an announcement that a look has renewed. Transactions that saw none before may have ended while it looked,
// and are asked for once more.
func (p *passes) renewed(sent time.Time, open []string) {
	for _, id := range p.asleep.open {
		if !slices.Contains(open, id) {
			open = append(open, id)
		}
	}
	p.announced(sent, open)
}

func (p *passes) sleepHold() time.Duration { return announcedShare * p.janitor.config.ScanInterval }

// announced records an announcement that was sent at that time, and which transactions were open then.
func (p *passes) announced(sent time.Time, open []string) {
	p.asleep.until, p.asleep.open, p.asleep.recheck = sent.Add(p.sleepHold()), open, recheckMin
}

// sleepAside sleeps, and asks meanwhile whether transactions have ended that may have added jobs without
// a notification. It returns early if one has, and then a look from the start is due, since the
// transaction may have been open for long.
func (p *passes) sleepAside(ctx context.Context, sleep sleepFunc, duration time.Duration, wakeEpoch float64) error {
	end := time.Now().Add(duration)
	for len(p.asleep.open) > 0 {
		began, wanted := time.Now(), min(time.Until(end), p.asleep.recheck)
		if err := sleep(ctx, wanted, wakeEpoch); err != nil || time.Since(began) < wanted || !time.Now().Before(end) {
			return err
		}
		open, err := p.stillOpen(ctx)
		if err != nil {
			return err
		}
		ended := len(open) < len(p.asleep.open)
		p.asleep.open, p.asleep.recheck = open, min(2*p.asleep.recheck, stuckDelayMax)
		if ended {
			p.due.notified(0)
			return nil
		}
	}
	return sleep(ctx, time.Until(end), wakeEpoch)
}

func (p *passes) stillOpen(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	return p.queries.StillOpen(ctx, p.asleep.open)
}
