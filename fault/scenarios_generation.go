package main

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/fault/check"
)

// idsRepeat is the mutant whose ids of jobs and tokens go on where the standby was.
const idsRepeat = "ids-repeat"

// failoverIDs kills the primary, and promotes a standby that lacks the last hundred ids of jobs, and of leases, at least. A
// sequence is 32 ahead in the log, so a standby that lacks less than that repeats nothing.
func failoverIDs(l *lab) error {
	const lacks = 100
	primary := l.own
	standby, err := l.standby()
	if err != nil {
		return err
	}
	l.run.MayLose = true
	if _, err := l.crew(3); err != nil {
		return err
	}
	stop := l.produce(60, 60)
	if err := l.awaitNumber(patience, 1, "select least(count(*), 1) from jobq.job where state = 'completed'"); err != nil {
		return errors.Join(err, stop())
	}
	if err := l.cutOffStandby(standby); err != nil {
		return errors.Join(err, stop())
	}
	const given = "select least(pg_sequence_last_value('jobq.job_id_seq'), pg_sequence_last_value('jobq.lease_number_seq') + $1)"
	apart := l.number("select pg_sequence_last_value('jobq.job_id_seq') - pg_sequence_last_value('jobq.lease_number_seq')")
	from := l.number(given, apart)
	err = l.within(patience, "ids that the standby lacks", func() (bool, error) { return l.number(given, apart) > from+lacks, nil })
	began, err2 := l.now()
	died := monotonic()
	primary.end(syscall.SIGKILL)
	if err := errors.Join(err, err2, stop()); err != nil {
		return err
	}
	if err := standby.do(l.ctx, "pg_ctl", "promote", "-w", "-D", standby.data()); err != nil {
		return err
	}
	if err := l.moveTo(standby); err != nil {
		return err
	}
	before := l.number("select coalesce(max(seq), 0) from fault.history")
	stop = l.produce(60, 60)
	err = l.within(patience, "claims on the promoted server", func() (bool, error) {
		return l.number("select count(distinct token) from fault.history where seq > $1 and stage = 'run' and op = 'insert'", before) > lacks, nil
	})
	reaper, err2 := l.awaitReaper()
	if err := errors.Join(err, err2, stop()); err != nil {
		return err
	}
	l.run.Paused = append(l.run.Paused, check.Span{From: began, To: reaper})
	if err := l.drain(); err != nil {
		return err
	}
	var first int64
	if err := l.pool.QueryRow(l.ctx, "select min(token) from fault.history where seq > $1 and stage = 'run' and op = 'insert'", before).Scan(&first); err != nil {
		return err
	}
	return l.nothingTwice(int64(died), first)
}

// cutOffStandby has the standby receive nothing more.
func (l *lab) cutOffStandby(standby *server) error {
	conn, err := pgx.Connect(l.ctx, standby.url("postgres"))
	if err != nil {
		return err
	}
	_, err1 := conn.Exec(l.ctx, "alter system set primary_conninfo = ''")
	_, err2 := conn.Exec(l.ctx, "select pg_reload_conf()")
	if err := errors.Join(err1, err2, conn.Close(l.ctx)); err != nil {
		return err
	}
	return l.awaitNumber(patience, 0, "select count(*) from pg_stat_replication")
}

// nothingTwice looks in the ledger whether a key names two jobs, and whether the first token of the promoted server is above
// those that were given to runs before the primary died.
func (l *lab) nothingTwice(died, first int64) error {
	effects, err := check.ReadLedger(l.folder, check.Effects)
	if err != nil {
		return err
	}
	byID, byKey := make(map[int64]map[string]bool), make(map[string]map[string]bool)
	last := int64(math.MinInt64)
	for _, e := range effects {
		if e.What != "begin" {
			continue
		}
		if e.Idem == "" {
			return fmt.Errorf("job %d has no idempotency key", e.Job)
		}
		note(byID, e.Job, e.Key)
		note(byKey, e.Idem, e.Key)
		if int64(e.Mono) < died {
			last = max(last, e.Token)
		}
	}
	ids, keys := ofTwo(byID), ofTwo(byKey)
	l.figuref("%d runs; %d ids were of two jobs, and %d idempotency keys; the tokens went up by %d", len(effects), ids, keys, first-last)
	switch {
	case keys > 0:
		return brokenf("%d idempotency keys are of two jobs", keys)
	case first <= last:
		return brokenf("the promoted server has given the token %d, after %d", first, last)
	}
	return nil
}

func note[K comparable](seen map[K]map[string]bool, of K, key string) {
	if seen[of] == nil {
		seen[of] = make(map[string]bool)
	}
	seen[of][key] = true
}

func ofTwo[K comparable](seen map[K]map[string]bool) (count int) {
	for _, keys := range seen {
		if len(keys) > 1 {
			count++
		}
	}
	return count
}
