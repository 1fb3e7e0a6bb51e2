package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/fault/check"
)

// badData offers what cannot be stored, and results that cannot.
func badData(l *lab) error {
	if _, err := l.crew(1); err != nil {
		return err
	}
	refused := 0
	for _, args := range []string{`{"a": "\u0000"}`, `{"a": 1e400000}`, `{"a": "` + strings.Repeat("x", 2<<20) + `"}`, strings.Repeat("[", 100_000)} {
		var id int64
		if err := l.pool.QueryRow(l.ctx, "select jobq.enqueue('task', $1::text::jsonb)", args).Scan(&id); err == nil {
			return fmt.Errorf("args of %d bytes were accepted: %.40s", len(args), args)
		}
		refused++
	}
	scripts := map[string]string{
		"nul in the output":      `printf 'a\000b' >&2; exit 1`,
		"not UTF-8":              `printf '\377\376' >&2; exit 1`,
		"nul in the result":      `printf '{"result": "\\u0000"}\n' >&3`,
		"number out of range":    `printf '{"result": 1e400000}\n' >&3`,
		"50 MiB of error":        `head -c 52428800 /dev/zero | tr '\0' x >&2; exit 1`,
		"deep result":            `(head -c 200000 /dev/zero | tr '\0' '['; head -c 200000 /dev/zero | tr '\0' ']') > $0.x; (printf '{"result": '; cat $0.x; printf '}\n') >&3`,
		"control channel broken": `printf '{"result"' >&3; exit 1`,
	}
	var args []string
	for name, script := range scripts {
		args = append(args, "--run", fmt.Sprintf("%s=sh -c '%s' %s/scratch", strings.ReplaceAll(name, " ", "-"), strings.ReplaceAll(script, "'", `'"'"'`), l.folder))
	}
	if _, err := l.worker(args...); err != nil {
		return err
	}
	if _, err := l.enqueue(order{Ms: 1}); err != nil { // the worker lives on
		return err
	}
	for name := range scripts {
		if _, err := l.enqueueVia(l.pool, order{}, strings.ReplaceAll(name, " ", "-"), ""); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, len(scripts), "select count(*) from jobq.finished where state = 'failed'"); err != nil {
		return err
	}
	l.figuref("%d sorts of args refused, %d sorts of ends stored as failed attempts", refused, len(scripts))
	return nil
}

// unknownKind has jobs of a kind that only the newer workers know.
func unknownKind(l *lab) error {
	if _, err := l.crew(2); err != nil {
		return err
	}
	for range 10 {
		if _, err := l.enqueueVia(l.pool, order{Ms: 1}, "newer", ""); err != nil {
			return err
		}
		if _, err := l.enqueue(order{Ms: 1}); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, 10, "select count(*) from jobq.finished"); err != nil {
		return err
	}
	spent := l.number("select coalesce(sum(attempts + lease_token), 0) from jobq.pending where kind = 'newer'")
	if _, err := l.worker("--run", fmt.Sprintf("newer=%s program %s", l.self, l.folder)); err != nil {
		return err
	}
	l.figuref("%d attempts spent on a kind that nobody knew", spent)
	if spent != 0 {
		return brokenf("%d claims or attempts of an unknown kind", spent)
	}
	return l.awaitNumber(patience, 20, "select count(*) from jobq.finished where state = 'completed'")
}

// stoppedListener stops a worker and notifies it of megabytes: what is pinned,
// and is it free afterwards?
func stoppedListener(l *lab) error {
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	channel := ""
	if err := l.pool.QueryRow(l.ctx, "select jobq.channel('work')").Scan(&channel); err != nil {
		return err
	}
	workers[0].freeze()
	for range 100 {
		if _, err := l.pool.Exec(l.ctx, "select count(pg_notify($1, i || repeat('x', 7000))) from generate_series(1, 10) i", channel); err != nil {
			return err
		}
	}
	var full float64
	if err := l.pool.QueryRow(l.ctx, "select pg_notification_queue_usage()").Scan(&full); err != nil {
		return err
	}
	id, err := l.enqueue(order{Ms: 1})
	if err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 1, "select count(*) from jobq.finished where id = $1", id); err != nil {
		return err
	}
	workers[0].thaw()
	since := time.Now()
	err = l.within(patience, "the notification queue to be read", func() (bool, error) {
		var usage float64
		err := l.pool.QueryRow(l.ctx, "select pg_notification_queue_usage()").Scan(&usage)
		return usage < 0.0001, err
	})
	l.figuref("queue %.4f full while stopped, empty %s after it went on; the other worker served meanwhile", full, time.Since(since).Round(10*time.Millisecond))
	return err
}

// contend has many sessions complete, cancel, requeue and delete the same
// jobs, with a deadlock timeout that lets none pass unseen.
func contend(l *lab) error {
	l.run.Requeues = true
	if _, err := l.pool.Exec(l.ctx, fmt.Sprintf("alter database %s set deadlock_timeout = '50ms'", l.database)); err != nil {
		return err
	}
	if _, err := l.crew(3); err != nil {
		return err
	}
	stop := l.produce(40, 5)
	var sessions sync.WaitGroup
	failures := make(chan error, 8)
	for i := range 4 {
		sessions.Go(func() {
			verb := []string{"cancel", "requeue"}[i%2]
			failures <- l.until(l.duration(), func() error {
				_, err := l.pool.Exec(l.ctx, fmt.Sprintf("select jobq.%s(id) from (select id from jobq.job order by id desc limit 30) j order by random()", verb))
				if err != nil && !strings.Contains(err.Error(), "is running") {
					return err
				}
				pause(l.ctx, 10*time.Millisecond)
				return nil
			})
		})
	}
	sessions.Wait()
	close(failures)
	var err error
	deadlocks := 0
	for failure := range failures {
		if failure != nil && strings.Contains(failure.Error(), "deadlock") {
			deadlocks++ // of this test's own random order
			continue
		}
		err = errors.Join(err, failure)
	}
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	seen := l.number("select deadlocks from pg_stat_database where datname = current_database()")
	l.figuref("%d deadlocks seen by the server, %d of them between the test's own sessions, no job hurt", seen, deadlocks)
	return nil
}

// uniqueRace enqueues one key from 64 sessions at once, again and again.
func uniqueRace(l *lab) error {
	if _, err := l.crew(2); err != nil {
		return err
	}
	duplicates := 0
	for round := range 10 {
		var sessions sync.WaitGroup
		ids := make([]int64, 64)
		failures := make([]error, 64)
		for i := range ids {
			sessions.Go(func() {
				conn, err := pgx.Connect(l.ctx, l.server.SocketURL(l.database))
				if err != nil {
					failures[i] = err
					return
				}
				defer func() { _ = conn.Close(l.ctx) }()
				ids[i], failures[i] = l.enqueueVia(conn, order{Ms: 1000}, "task", fmt.Sprintf(", unique_key => 'round %d'", round))
			})
		}
		sessions.Wait()
		if err := errors.Join(failures...); err != nil {
			return err
		}
		different := map[int64]bool{}
		for _, id := range ids {
			different[id] = true
		}
		duplicates += len(different) - 1
	}
	l.figuref("640 inserts of 10 keys, %d duplicates", duplicates)
	if duplicates != 0 {
		return brokenf("%d duplicates", duplicates)
	}
	return nil
}

// drains ends workers at full load, by one signal, by two, and not by -9.
func drains(l *lab) error {
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	stop := l.produce(40, 150)
	rounds := 0
	var longest time.Duration
	err = l.until(l.duration(), func() error {
		pause(l.ctx, l.between(200*time.Millisecond, 600*time.Millisecond))
		i := rounds % len(workers)
		since := time.Now()
		if err := workers[i].end(); err != nil {
			return err
		}
		longest = max(longest, time.Since(since))
		rounds++
		workers[i], err = l.worker()
		return err
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	burnt := l.number("select count(*) from jobq.attempt where outcome not in ('completed', 'released')")
	l.figuref("%d drains at full load, the longest %s, %d attempts burnt", rounds, longest.Round(10*time.Millisecond), burnt)
	if rounds == 0 || burnt != 0 {
		return brokenf("%d rounds, %d attempts burnt", rounds, burnt)
	}
	return nil
}

// chaos picks faults at random, more often heals, for as long as it may.
func chaos(l *lab) error {
	workers, err := l.crew(3)
	if err != nil {
		return err
	}
	stop := l.produce(15, 250)
	faults := map[string]int{}
	err = l.until(l.duration(), func() error {
		i := l.random.IntN(len(workers))
		w := workers[i]
		pause(l.ctx, l.between(50*time.Millisecond, 500*time.Millisecond))
		switch n := l.random.IntN(16); {
		case n < 2:
			faults["kill"]++
			w.kill()
			workers[i], err = l.worker()
			return err
		case n < 4:
			faults["stop"]++
			w.freeze()
		case n < 5:
			faults["blackhole"]++
			w.proxy.blackhole(everything)
		case n < 6:
			faults["cut"]++
			w.proxy.cut(false)
		case n < 7:
			faults["delay"]++
			w.proxy.set(l.between(time.Millisecond, 200*time.Millisecond), 0)
		default:
			for _, w := range workers {
				w.thaw()
				w.proxy.heal()
			}
		}
		return nil
	})
	for _, w := range workers {
		w.thaw()
	}
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%v; %d transitions, %d jobs, %d violations", faults, v.Transitions, v.Acknowledged, len(v.Violations))
	}
	return nil
}

// restartServer restarts the server at once, as a crash of it does, under load.
func restartServer(l *lab) error {
	if _, err := l.crew(3); err != nil {
		return err
	}
	stop := l.produce(20, 100)
	restarts := 0
	var longest time.Duration
	err := l.until(l.duration(), func() error {
		pause(l.ctx, l.between(300*time.Millisecond, 900*time.Millisecond))
		from, err := l.now()
		if err != nil {
			return err
		}
		if err := l.server.Halt(); err != nil {
			return err
		}
		if err := l.server.Relaunch(l.ctx); err != nil {
			return err
		}
		up := time.Now()
		restarts++
		before := l.number("select coalesce(max(seq), 0) from fault.history")
		err = l.within(patience, "the first claim after the restart", func() (bool, error) {
			return l.number("select count(*) from fault.history where seq > $1 and stage = 'running' and op = 'insert'", before) > 0, nil
		})
		longest = max(longest, time.Since(up))
		to, err2 := l.now()
		l.run.Paused = append(l.run.Paused, check.Span{From: from.Add(-lease), To: to.Add(time.Second)})
		return errors.Join(err, err2)
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d restarts, %d acknowledged jobs, %d lost; first claim at most %s after the server was up", restarts, v.Acknowledged, v.Lost,
			longest.Round(10*time.Millisecond))
	}
	return nil
}

// restartBesideSibling kills and restarts one of two workers of a host, beside
// one of a host with a longer name. The dead one's jobs are recovered at its
// restart, the others' are never touched.
func restartBesideSibling(l *lab) error {
	l.run.Recovers = true
	if err := l.janitor("--scan", "0"); err != nil { // only restarts recover
		return err
	}
	if err := l.set("--lease", "1h"); err != nil {
		return err
	}
	siblings := make([]int64, 0, 2)
	for _, host := range []hostname{"web-1", "web-1-2"} {
		if _, err := l.workerOn(host, "-q", "default=1"); err != nil {
			return err
		}
		id, err := l.enqueue(order{Ms: int((l.duration() + 25*time.Second).Milliseconds()), MsTwo: 1})
		if err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.running where id = $1", id); err != nil {
			return err
		}
		siblings = append(siblings, id)
	}
	trials := 0
	var longest time.Duration
	err := l.until(max(l.duration(), 5*time.Second), func() error {
		victim, err := l.workerOn("web-1", "-q", "default=1")
		if err != nil {
			return err
		}
		id, err := l.enqueue(order{Ms: 60_000, MsTwo: 1})
		if err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.running where id = $1", id); err != nil {
			return err
		}
		victim.kill()
		since := time.Now()
		restarted, err := l.workerOn("web-1", "-q", "default=1")
		if err != nil {
			return err
		}
		if restarted.log.count("recovered 1 orphaned jobs") != 1 {
			return brokenf("the restarted worker did not recover one job: %s", restarted.log)
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.finished where id = $1 and attempts = 1 and last_error = 'orphaned by worker restart'", id); err != nil {
			return err
		}
		longest = max(longest, time.Since(since))
		trials++
		return restarted.end()
	})
	if err != nil {
		return err
	}
	touched := l.number("select count(*) from fault.history where id = any($1) and op = 'delete' and stage = 'running'", siblings)
	l.figuref("%d restarts, siblings touched %d times; recovered and done again within %s of the kill, leases of 1h", trials, touched, longest.Round(10*time.Millisecond))
	if touched != 0 {
		return brokenf("live siblings' jobs were touched %d times", touched)
	}
	return nil
}
