package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ownUnfenced is the mutant with which a run is not looked up by its token.
const ownUnfenced = "own-end-without-token"

// codeRunOver is with which jobq.complete and its like refuse a run that is over.
const codeRunOver = "JQ005"

// runOwn is what the jobs of kind own are: a program that has its effect and the end of
// its job in one transaction. Told to forget, it ends well without a commit.
func runOwn(folder string) error {
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
	tx, err := conn.Begin(background)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(background, ownEffect, t.job, t.token); err != nil {
		return err
	}
	if err := t.work(io.Discard); err != nil {
		return err
	}
	if _, err := tx.Exec(background, ownComplete, t.job, os.Getenv("JOBQ_RUN_TOKEN"), t.token); err != nil {
		return err
	}
	if err := t.note("end"); err != nil { // it may be killed once it has committed
		return err
	}
	if t.Do == "forget" && !t.again {
		return nil
	}
	time.Sleep(time.Duration(t.Ms/4) * time.Millisecond) // to be killed between the completion and the commit
	return tx.Commit(background)
}

const (
	ownEffect   = "insert into public.effect (job, token) values ($1, $2)"
	ownComplete = "select jobq.complete($1, $2, jsonb_build_object('token', $3::bigint))"
	// ownToken is the token of the current run of a job, with the code that jobq's own function makes.
	ownToken = `select t.run || '.' || jobq.run_token_code(t.run)
		from jobq.lease l join jobq.run r on r.lease_id = l.id join jobq.job j on j.id = r.id and j.lease_token = l.id,
		lateral (select l.id || '.' || (extract(epoch from l.claimed_at) * 1000000)::bigint || '.' || r.slot as run) t where j.id = $1 and j.state = 'running'`
)

// startPrograms starts two janitors, and two workers whose jobs of the kind this program runs,
// with a setting that lets it call the database.
func (l *lab) startPrograms(kind, setting string) (workers []*process, config string, err error) {
	config = filepath.Join(l.folder, "jobq.yaml")
	content := fmt.Sprintf("kinds:\n  %s:\n    command: [%q, %s, %q]\n    %s: true\n    env: {DATABASE_URL: %q}\n", kind, l.self, kind, l.folder, setting, l.url(l.database))
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		return nil, "", err
	}
	for range 2 {
		if err := l.janitor(); err != nil {
			return nil, "", err
		}
	}
	workers = make([]*process, 2)
	for i := range workers {
		if workers[i], err = l.worker("--config", config); err != nil {
			return nil, "", err
		}
	}
	return workers, config, nil
}

// stopOrKill stops one of the workers for about as long as its lease, or kills it and
// starts another in its place.
func (l *lab) stopOrKill(workers []*process, config string, stops, kills *int) (err error) {
	i := l.random.IntN(len(workers))
	if l.random.IntN(3) == 0 {
		*stops++
		workers[i].freeze()
		pause(l.ctx, l.between(lease/2, 2*lease))
		workers[i].thaw()
		return nil
	}
	*kills++
	workers[i].kill()
	workers[i], err = l.worker("--config", config)
	return err
}

// ownEnds has programs complete jobs in the transactions that have their effects, while
// their workers are killed, and stopped past their leases. Each job must have its effect
// once, of the run that has completed it; a stale run gets neither in.
func ownEnds(l *lab) error {
	if _, err := l.pool.Exec(l.ctx, "create table public.effect (job bigint not null, token bigint not null)"); err != nil {
		return err
	}
	workers, config, err := l.startPrograms("own", "ends_itself")
	if err != nil {
		return err
	}
	kills, stops, stale := 0, 0, 0
	err = l.until(l.duration(), func() error {
		for i := range 4 {
			o := order{Ms: 60 * (i + 1)}
			if i == 3 {
				o.Do = "forget"
			}
			if _, err := l.enqueueVia(l.pool, o, "own", ""); err != nil {
				return err
			}
		}
		pause(l.ctx, l.between(100*time.Millisecond, 600*time.Millisecond))
		return l.stopOrKill(workers, config, &stops, &kills)
	})
	for range 3 {
		if err == nil {
			err = l.staleOwn(workers, config, &stale)
		}
	}
	if err == nil { // one that nobody kills before it has forgotten
		_, err = l.enqueueVia(l.pool, order{Ms: 10, Do: "forget"}, "own", "")
	}
	if err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, "select count(*) from jobq.job where kind = 'own' and finished_at is null"); err != nil {
		return err
	}
	forgotten := l.number("select count(*) from jobq.attempt where error like '%no transaction of its own has ended the job%'")
	// A job that was killed as often as it has attempts has failed, and has no effect.
	wrong := l.text(`select string_agg(format('job %s is %s, with effects of the runs %s', j.id, j.state, coalesce(e.tokens::text, 'none')), '; ')
		from jobq.job j left join (select e.job, array_agg(e.token) as tokens from public.effect e group by e.job) e on e.job = j.id
		where j.kind = 'own' and e.tokens is distinct from case when j.state = 'completed' then array[j.lease_token] end`)
	l.figuref("%d kills, %d stops, %d commits forgotten, %d stale completions refused; %d effects of %d completed jobs", kills, stops, forgotten, stale,
		l.number("select count(*) from public.effect"), l.number("select count(*) from jobq.job where kind = 'own' and state = 'completed'"))
	switch {
	case !strings.HasPrefix(wrong, "unknown: <nil>"):
		return brokenf("%s", wrong)
	case forgotten == 0 || stale == 0 || kills+stops == 0:
		return errors.New("nothing was put to the test")
	}
	return nil
}

// staleOwn completes a job with the token of a run whose worker was killed, while the next
// one runs, as a program would that has outlived its worker.
func (l *lab) staleOwn(workers []*process, config string, refused *int) error {
	id, err := l.enqueueSurely(order{Ms: 1500}, "own")
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
	for i := range workers {
		workers[i].kill()
		if workers[i], err = l.worker("--config", config); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'running' and lease_token > $2", id, lease); err != nil {
		return err
	}
	err = l.inTx(func(tx pgx.Tx) error {
		if _, err := tx.Exec(l.ctx, ownEffect, id, lease); err != nil {
			return err
		}
		_, err := tx.Exec(l.ctx, ownComplete, id, token, lease)
		return err
	})
	var told *pgconn.PgError
	if errors.As(err, &told) && told.Code == codeRunOver {
		*refused++
		return nil
	}
	if err == nil {
		return brokenf("job %d was completed by the run %s, whose lease was lost", id, token)
	}
	return err
}
