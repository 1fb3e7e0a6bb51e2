package janitor

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/mutant"
)

const (
	// patienceSlack is how much later than planned a sign of the database may come, as on a busy machine, without
	// an outage.
	patienceSlack = 10 * time.Second
	// patienceMax is how long an outage is remembered. LeasePatience is patient for no longer.
	patienceMax = time.Hour
	// outagesMax is how many outages are remembered, the latest.
	outagesMax = 16
	// patientMax is how many leases are left alone one by one. If there are more, none is taken meanwhile.
	patientMax = 1000
)

// patience knows when the database was away, or this janitor was, and which leases could not be extended for that
// reason: they are not taken yet. Only time in which an owner could have extended its lease counts. For example, with
// leases of 60 s that are extended every 20 s:
//
//	12:00:00  a look at what is due is answered
//	12:00:03  the next statement fails
//	12:10:00  a look is answered: there was an outage, from 12:00:00 to 12:10:00. A lease that ended at
//	          12:00:45 is left alone until 12:10:20. One that ended at 11:59:50 is taken
//	12:10:01  its owner extends the first lease
//	12:10:05  there is another outage, to 12:11:00. A third lease that ended at 12:00:50, of an owner that
//	          has died, is left alone until 12:11:15: outages one after the other make it wait no longer
//
// The passes of a janitor share it.
type patience struct {
	mu sync.Mutex
	// guarded by mu
	at      time.Time // of the latest sign of the database, by its clock; zero: none
	atLocal time.Time // the same by ours; zero: another janitor has told of it
	broken  bool      // a call has failed since
	since   []time.Time
	until   []time.Time         // beside each outage's beginning, its end
	leases  map[int64]time.Time // until when each is left alone
	none    time.Time           // no lease is taken before
}

// remember records that a janitor has lived at that time, by the database's clock, if nothing later is known.
func (s *patience) remember(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() {
		s.at = at
	}
}

func (s *patience) hasSign() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.at.IsZero()
}

// sign records that the database has answered.
func (s *patience) sign() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); !s.atLocal.IsZero() && !s.broken {
		s.at, s.atLocal = s.at.Add(now.Sub(s.atLocal)), now
	}
}

// failed records that the database could not be used.
func (s *patience) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = s.broken || db.IsTransient(err)
}

// answered records that the database has answered at that time, by its clock, and when the server has started. It says
// whether there was an outage before: a call has failed, the server was restarted, or the latest sign is older than
// allowed.
func (s *patience) answered(at, started time.Time, allowed time.Duration) (outage bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && at.After(s.at) && (s.broken || started.After(s.at) || at.Sub(s.at) > allowed) {
		outage = true
		s.since, s.until = append(s.since, s.at), append(s.until, at)
	}
	for len(s.until) > outagesMax || len(s.until) > 0 && at.Sub(s.until[0]) > patienceMax {
		s.since, s.until = s.since[1:], s.until[1:]
	}
	s.at, s.atLocal, s.broken = at, time.Now(), false
	return outage
}

// outages are when the known outages began and ended.
func (s *patience) outages() (since, until []pgtype.Timestamptz) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.since {
		since = append(since, pgtype.Timestamptz{Time: s.since[i], Valid: true})
		until = append(until, pgtype.Timestamptz{Time: s.until[i], Valid: true})
	}
	return since, until
}

// grant records which leases are left alone, by an answer that was asked for at the time.
func (s *patience) grant(rows []db.LeasePatienceRow, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases, s.none = make(map[int64]time.Time, len(rows)), time.Time{}
	for _, row := range rows {
		if !mutant.IsPatient() {
			break
		}
		until := asked.Add(time.Duration(row.Ms) * time.Millisecond)
		if !mutant.PatienceEnds() {
			until = asked.Add(patienceMax)
		}
		s.leases[row.ID] = until
		if len(rows) > patientMax {
			s.none = later(s.none, until)
		}
	}
}

// patient are the leases to leave alone now, and when the first of them may be taken; all says that none may be.
func (s *patience) patient(now time.Time) (leases []int64, first time.Time, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.none) {
		return nil, s.none, true
	}
	for id, until := range s.leases {
		if !now.Before(until) {
			delete(s.leases, id)
			continue
		}
		leases = append(leases, id)
		if first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return leases, first, false
}

// recall finds out when a janitor has last lived, before this one says for the first time that it does.
func (j *Janitor) recall(ctx context.Context) error {
	if j.patience.hasSign() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	seen, err := j.schema.Queries(j.pool()).JanitorLast(ctx)
	if err == nil {
		j.patience.remember(seen.Time)
	}
	return err
}

// allowed is how long after the latest sign of the database the answer to a look may come. The first look of all
// comes when another janitor has lost its lead.
func (p *passes) allowed() time.Duration {
	if p.lookedAt.IsZero() {
		return p.janitor.config.ScanInterval + p.janitor.neglectBound() + patienceSlack
	}
	return p.planned + patienceSlack
}

// bePatient finds out which leases are to be left alone, if the look that was just answered has found an outage.
func (p *passes) bePatient(ctx context.Context, next *db.NextDueRow) error {
	outage := p.janitor.patience.answered(next.LookedAt.Time, next.ServerStartedAt.Time, p.allowed())
	p.lookedAt, p.planned = time.Now().Round(0), 0
	if !outage || p.janitor.config.NoReap {
		return nil
	}
	since, until := p.janitor.patience.outages()
	asked := time.Now()
	rows, err := p.queries.LeasePatience(ctx, since, until, patientMax+1)
	if err != nil {
		p.janitor.patience.failed(err)
		return err
	}
	p.janitor.patience.grant(rows, asked)
	if len(rows) > 0 {
		p.janitor.log.Info("leases could not be extended in an outage, and have some time more",
			"leases", min(len(rows), patientMax), "from", since[len(since)-1].Time, "to", until[len(until)-1].Time)
	}
	return nil
}

// mayReap says whether leases may be taken. If this janitor was away since its last look, it looks first: there may
// have been an outage.
func (p *passes) mayReap(ctx context.Context) (bool, error) {
	if !p.leases.due() {
		return false, nil
	}
	// By the wall clock, which goes on while the machine is suspended.
	if p.lookedAt.IsZero() || time.Now().Round(0).Sub(p.lookedAt) > p.planned+patienceSlack {
		if _, err := p.next(ctx); err != nil {
			return false, err
		}
	}
	_, _, all := p.janitor.patience.patient(time.Now())
	return !all && p.leases.due(), nil
}

// around is what a reap and a look now pass by.
func (p *passes) around(now time.Time) db.Around {
	around := p.aside.around(now)
	leases, _, _ := p.janitor.patience.patient(now)
	around.Leases = append(around.Leases, leases...)
	return around
}

// untilPatience is how long until the first lease may be taken that is left alone.
func (p *passes) untilPatience() time.Duration {
	_, first, _ := p.janitor.patience.patient(time.Now())
	if first.IsZero() {
		return patienceMax
	}
	return max(time.Until(first), 0)
}
