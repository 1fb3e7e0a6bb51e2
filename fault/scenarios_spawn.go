package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/fault/check"
)

// awaitUnannounced is the mutant in which a job that begins to await another one tells no janitor.
const awaitUnannounced = "await-not-announced"

// What jobs of kind steps are told to do by order.Do, in place of the usual.
const (
	doSpawn       = "spawn"            // spawn a leaf, and await it
	doSpawnNobody = "spawn for nobody" // likewise, in a queue that no worker has
	doLeaf        = "leaf"             // be awaited
)

// awaitPlace is the number of an advisory lock: while the lab has it, jobs that are told to
// spawn for nobody do not come to their await.
const awaitPlace = 46

// spawnAndAwait adds another job in the transaction that stores its id, works, and awaits it.
func (t task) spawnAndAwait(conn *pgx.Conn, token string) error {
	background := context.Background()
	leaf, err := t.spawn(conn, token)
	if err != nil {
		return err
	}
	if err := t.work(os.NewFile(3, "control")); err != nil {
		return err
	}
	if t.Do == doSpawnNobody {
		if _, err := conn.Exec(background, "select pg_advisory_lock_shared($1), pg_advisory_unlock_shared($1)", awaitPlace); err != nil {
			return err
		}
	}
	var done bool
	if err := conn.QueryRow(background, "select done from jobq.step_await($1, $2, 'leaf', array[$3::bigint])", t.job, token, leaf).Scan(&done); err != nil || !done {
		return err
	}
	return t.note("end")
}

// spawn returns the id of the job that this run or an earlier one has added. It is slow, to be killed in it.
func (t task) spawn(conn *pgx.Conn, token string) (leaf int64, err error) {
	background := context.Background()
	var done bool
	var stored *int64
	err = conn.QueryRow(background, "select done, result::bigint from jobq.step_get($1, $2, 'spawn')", t.job, token).Scan(&done, &stored)
	if err != nil || done {
		if stored != nil {
			leaf = *stored
		}
		return leaf, err
	}
	child := order{Key: fmt.Sprintf("%s of run %d", t.Key, t.token), Ms: 20, Do: doLeaf}
	if err := check.Append(t.folder, check.Producers, check.Entry{Mono: monotonic(), What: "intent", Key: child.Key}); err != nil {
		return 0, err
	}
	queue := "default"
	if t.Do == doSpawnNobody {
		queue = "of nobody"
	}
	err = pgx.BeginFunc(background, conn, func(tx pgx.Tx) error {
		more := fmt.Sprintf(", queue => '%s', metadata => '{\"parent\": %d}'", queue, t.job)
		if err := tx.QueryRow(background, fmt.Sprintf(enqueueOne, maxAttempts, more), "steps", child).Scan(&leaf); err != nil {
			return err
		}
		time.Sleep(time.Duration(t.Ms/4) * time.Millisecond)
		if _, err := tx.Exec(background, stepPut, t.job, token, "spawn", leaf); err != nil {
			return err
		}
		time.Sleep(time.Duration(t.Ms/4) * time.Millisecond)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return leaf, check.Append(t.folder, check.Producers, check.Entry{Mono: monotonic(), What: "ack", Key: child.Key, Job: leaf})
}

// spawnWrong names jobs that have spawned two, that ended before the one they awaited, and that still wait.
const spawnWrong = `select string_agg(w.text, '; ') from (
    select format('job %s has spawned %s jobs', j.metadata ->> 'parent', count(*)) as text
      from jobq.job j where j.metadata ? 'parent' group by j.metadata ->> 'parent' having count(*) > 1
    union all
    select format('job %s is %s since %s, and job %s, which it has awaited, is %s since %s', p.id, p.state, p.finished_at, j.id, j.state, j.finished_at)
      from jobq.job j
      join jobq.job p on p.id = (j.metadata ->> 'parent')::bigint
      where p.state = 'completed' and (j.finished_at is null or j.finished_at > p.finished_at + interval '10 ms')
    union all
    select format('job %s is %s', j.id, j.state) from jobq.job j where j.kind = 'steps' and j.finished_at is null
  ) w`

// spawnsAndKills has jobs spawn others and await them while their workers are killed, and
// stopped past their leases. Each spawns one, and goes on when that has ended.
func spawnsAndKills(l *lab) error {
	workers, config, err := l.startPrograms("steps", "steps")
	if err != nil {
		return err
	}
	for range 2 {
		if err := l.awaitedEndsUnseen(); err != nil {
			return err
		}
	}
	kills, stops := 0, 0
	err = l.until(l.duration(), func() error {
		for i := range 4 {
			if _, err := l.enqueueVia(l.pool, order{Ms: 40 * (i + 1), Do: doSpawn}, "steps", ""); err != nil {
				return err
			}
		}
		pause(l.ctx, l.between(100*time.Millisecond, 600*time.Millisecond))
		return l.stopOrKill(workers, config, &stops, &kills)
	})
	if err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, "select count(*) from jobq.job where kind = 'steps' and finished_at is null"); err != nil {
		return err
	}
	wrong := l.text(spawnWrong)
	spawned := l.number("select count(*) from jobq.job where metadata ? 'parent'")
	waits := l.number("select count(*) from jobq.attempt where outcome = 'snoozed'")
	l.figuref("%d kills, %d stops; %d jobs spawned, each once, and awaited in %d waits", kills, stops, spawned, waits)
	switch {
	case !strings.HasPrefix(wrong, "unknown: <nil>"):
		return brokenf("%s", wrong)
	case spawned == 0 || waits == 0 || kills+stops == 0:
		return errors.New("nothing was put to the test")
	}
	return nil
}

// awaitedEndsUnseen ends a job in a transaction that has looked who waits for it before
// another one awaits it, and that is committed after the janitor has looked at it for the
// first time: only a later look finds that the one that awaits it may go on.
func (l *lab) awaitedEndsUnseen() error {
	hold, err := l.pool.Begin(l.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Rollback(l.ctx) }()
	if _, err := hold.Exec(l.ctx, "select pg_advisory_xact_lock($1)", awaitPlace); err != nil {
		return err
	}
	id, err := acknowledged(l.enqueueVia(l.pool, order{Do: doSpawnNobody}, "steps", ""))
	if err != nil {
		return err
	}
	const leaf = "select id from jobq.job where metadata = jsonb_build_object('parent', $1::bigint)"
	if err := l.awaitNumber(patience, 1, "select count(*) from ("+leaf+") j", id); err != nil {
		return err
	}
	other := l.number(leaf, id)
	err = l.inTx(func(tx pgx.Tx) error {
		if _, err := tx.Exec(l.ctx, "select jobq.cancel($1)", other); err != nil {
			return err
		}
		if err := hold.Commit(l.ctx); err != nil { // now it may await the other one
			return err
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'waiting'", id); err != nil {
			return err
		}
		return l.awaitNumber(patience, 0, "select count(*) from jobq.dependency_look where job_id = $1 and sure_from is null", other)
	})
	if err != nil {
		return err
	}
	return l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'completed'", id)
}
