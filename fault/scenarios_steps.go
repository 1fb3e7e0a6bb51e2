package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// eventUnlocked is the mutant with which emitters and those who wait do not take turns.
const eventUnlocked = "event-without-turns"

const (
	stepEffect = "insert into public.step_effect (job, name, token) values ($1, $2, $3)"
	stepPut    = "select jobq.step_put($1, $2, $3, to_jsonb($4::bigint))"
)

// runSteps is what the jobs of kind steps are: a program that begins anew in each run, and
// goes on after what it has done. It charges and ships in transactions with the steps'
// results, and sleeps and waits for an event in between.
func runSteps(folder string) error {
	t, err := readTask(folder)
	if err != nil {
		return err
	}
	background := context.Background()
	conn, err := pgx.Connect(background, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(background) }() // what is open then is rolled back
	token := os.Getenv("JOBQ_RUN_TOKEN")
	if t.Do == doSpawn || t.Do == doSpawnNobody {
		return t.spawnAndAwait(conn, token)
	}
	if err := t.work(os.NewFile(3, "control")); err != nil {
		return err
	}
	if t.Do == doLeaf {
		return t.note("end")
	}
	if err := t.stepTx(conn, token, "charge"); err != nil {
		return err
	}
	var done bool
	if err := conn.QueryRow(background, "select jobq.step_sleep($1, $2, 'sleep', '200 ms')", t.job, token).Scan(&done); err != nil || !done {
		return err
	}
	if err := conn.QueryRow(background, "select done from jobq.step_wait($1, $2, $3)", t.job, token, t.event()).Scan(&done); err != nil || !done {
		return err
	}
	if err := t.stepTx(conn, token, "ship"); err != nil {
		return err
	}
	return t.note("end")
}

// event is the name of the one that the job waits for.
func (t task) event() string { return "of " + t.Key }

// stepTx does a step with its effect in one transaction, slowly, to be killed in it.
func (t task) stepTx(conn *pgx.Conn, token, name string) error {
	background := context.Background()
	var done bool
	if err := conn.QueryRow(background, "select done from jobq.step_get($1, $2, $3)", t.job, token, name).Scan(&done); err != nil || done {
		return err
	}
	return pgx.BeginFunc(background, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(background, stepEffect, t.job, name, t.token); err != nil {
			return err
		}
		time.Sleep(time.Duration(t.Ms/2) * time.Millisecond)
		if _, err := tx.Exec(background, stepPut, t.job, token, name, t.token); err != nil {
			return err
		}
		time.Sleep(time.Duration(t.Ms/4) * time.Millisecond)
		return nil
	})
}

// stepsAndKills has jobs do steps, sleep and wait for events while their workers are killed,
// and stopped past their leases. Each step is stored once, with its effect, and each job
// comes to its end.
func stepsAndKills(l *lab) error {
	if _, err := l.pool.Exec(l.ctx, "create table public.step_effect (job bigint not null, name text not null, token bigint not null)"); err != nil {
		return err
	}
	workers, config, err := l.startPrograms("steps", "steps")
	if err != nil {
		return err
	}
	kills, stops := 0, 0
	err = l.until(l.duration(), func() error {
		for i := range 4 {
			if _, err := l.enqueueVia(l.pool, order{Ms: 40 * (i + 1)}, "steps", ""); err != nil {
				return err
			}
		}
		pause(l.ctx, l.between(100*time.Millisecond, 600*time.Millisecond))
		if err := l.emitSome("limit 4"); err != nil {
			return err
		}
		return l.stopOrKill(workers, config, &stops, &kills)
	})
	if err == nil {
		err = l.emitWhileWaiting()
	}
	if err == nil {
		err = l.staleStep(workers, config)
	}
	if err != nil {
		return err
	}
	if err := l.within(patience, "all jobs with steps to end", func() (bool, error) {
		return l.number("select count(*) from jobq.job where kind = 'steps' and finished_at is null") == 0, l.emitSome("")
	}); err != nil {
		return err
	}
	// A job that was killed as often as it has attempts has failed, and may lack its later steps.
	wrong := l.text(`select string_agg(format('job %s is %s, with the steps %s and the effects %s', j.id, j.state, coalesce(s.steps, 'none'), coalesce(e.effects, 'none')), '; ')
		from jobq.job j
		left join (select s.job_id, string_agg(s.name || ' ' || s.result, ', ' order by s.number) as steps
			from jobq.step s where s.type = 'step' and s.finished_at is not null group by s.job_id) s on s.job_id = j.id
		left join (select e.job, string_agg(e.name || ' ' || e.token, ', ' order by e.name) as effects from public.step_effect e group by e.job) e on e.job = j.id
		where j.kind = 'steps' and (e.effects is distinct from s.steps or j.state = 'completed' and s.steps !~ '^charge \d+, ship \d+$')`)
	slept := l.number("select count(*) from jobq.attempt where outcome = 'snoozed'")
	l.figuref("%d kills, %d stops, %d sleeps and waits; %d effects of %d jobs, each once", kills, stops, slept,
		l.number("select count(*) from public.step_effect"), l.number("select count(*) from jobq.job where kind = 'steps' and state = 'completed'"))
	switch {
	case !strings.HasPrefix(wrong, "unknown: <nil>"):
		return brokenf("%s", wrong)
	case slept == 0 || kills+stops == 0:
		return errors.New("nothing was put to the test")
	}
	return nil
}

// emitSome emits events of jobs that have not ended, whether they wait already or not.
func (l *lab) emitSome(limit string) error {
	_, err := l.pool.Exec(l.ctx, `select jobq.emit('of ' || (j.args ->> 'key')) from (
		select j.args from jobq.job j where j.kind = 'steps' and j.finished_at is null and (j.args ->> 'do') is distinct from 'forced' order by random() `+limit+`) j`)
	return err
}

// emitWhileWaiting makes the moment in which a wake-up could be lost: a transaction has
// emitted an event and is open, when a job comes to wait for it. When the transaction
// commits, nobody tells that job.
func (l *lab) emitWhileWaiting() error {
	// It works for a second before it comes to wait: long enough to emit before that.
	id, err := l.enqueueSurely(order{Ms: 1000, Do: "forced"}, "steps")
	if err != nil {
		return err
	}
	tx, err := l.pool.Begin(l.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(l.ctx) }()
	if _, err := tx.Exec(l.ctx, "select jobq.emit('of ' || (j.args ->> 'key')) from jobq.job j where j.id = $1", id); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 1, `select count(*) from jobq.job j join jobq.step s on s.job_id = j.id
		where j.id = $1 and j.state = 'scheduled' and s.type = 'event' and s.lease_token = j.lease_token`, id); err != nil {
		return err
	}
	if err := tx.Commit(l.ctx); err != nil {
		return err
	}
	// Either it looks again soon, or it sleeps for ever.
	if l.number("select count(*) from jobq.job where id = $1 and state = 'scheduled' and run_at > now() + interval '1 day'", id) == 1 {
		return brokenf("job %d waits for an event that has come, and nobody will wake it", id)
	}
	if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'completed'", id); err != nil {
		return err
	}
	_, err = l.pool.Exec(l.ctx, "select jobq.emit('of ' || (j.args ->> 'key')) from jobq.job j where j.finished_at is null and j.args ->> 'do' = 'forced'") // those that were not acknowledged
	return err
}

// staleStep stores a step with the token of a run whose worker was killed, while the next
// one runs, as a program would that has outlived its worker.
func (l *lab) staleStep(workers []*process, config string) error {
	id, err := l.enqueueSurely(order{Ms: 1500}, "steps")
	if err != nil {
		return err
	}
	var token string
	if err := l.within(patience, "a run to become stale", func() (bool, error) {
		token = l.text(ownToken, id)
		return !strings.HasPrefix(token, "unknown"), nil
	}); err != nil {
		return err
	}
	var lease int64
	if _, err := fmt.Sscan(token[:strings.Index(token, ".")], &lease); err != nil {
		return err
	}
	for _, each := range workers { // both, so that the next run is not one that is killed as well
		each.kill()
	}
	for i := range workers {
		if workers[i], err = l.worker("--config", config); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'running' and lease_token > $2", id, lease); err != nil {
		return err
	}
	_, err = l.pool.Exec(l.ctx, stepPut, id, token, "stale", lease)
	var told *pgconn.PgError
	if errors.As(err, &told) && told.Code == codeRunOver {
		return nil
	}
	if err == nil {
		return brokenf("a step of job %d was stored by the run %s, whose lease was lost", id, token)
	}
	return err
}
