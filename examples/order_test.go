package examples

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// gate is an advisory lock that the test holds. At the gate, the worker's statement waits for it.
const gate = 4711

// gateTables stop the worker at one moment: when a run first comes to a step ("begin
// charge"), when it stores that a step is done ("done charge"), or that the job is ("completed").
const gateTables = `
	create table public.gate (moment text not null);
	create function public.stop(moment text) returns void language plpgsql as $$
	begin
	  if exists (select from public.gate g where g.moment = stop.moment) then
	    perform pg_advisory_xact_lock(4711);
	  end if;
	end $$;
	create function public.stop_step() returns trigger language plpgsql as $$
	begin
	  if tg_op = 'INSERT' then
	    perform public.stop('begin ' || new.name);
	  elsif old.finished_at is null and new.finished_at is not null then
	    perform public.stop('done ' || new.name);
	  end if;
	  return new;
	end $$;
	create trigger stop_step before insert or update on jobq.step for each row execute function public.stop_step()`

// orderLab runs the worker of examples/order as a process, on a database of its own.
type orderLab struct {
	*testing.T
	program string
	url     string
	pool    *pgxpool.Pool
	client  *jobq.Client
	holder  *pgx.Conn // has the lock of the gate
}

func newOrderLab(t *testing.T, program string) *orderLab {
	t.Helper()
	ctx := context.Background()
	l := &orderLab{T: t, program: program, url: pgtest.URL(t)}
	config, err := pgxpool.ParseConfig(l.url)
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["application_name"] = "test"
	l.pool = pgtest.ConnectConfig(t, config)
	l.client, err = jobq.NewClient(l.pool, nil)
	require.NoError(t, err)
	shop, err := os.ReadFile(filepath.Join("order", "shop.sql"))
	require.NoError(t, err)
	l.exec(string(shop))
	l.exec(gateTables)
	require.NoError(t, pgtest.BeforeCompletion(ctx, l.pool, "perform public.stop('completed');"))
	held, err := l.pool.Acquire(ctx)
	require.NoError(t, err)
	l.holder = held.Conn()
	t.Cleanup(func() {
		_, err := l.holder.Exec(ctx, "select pg_advisory_unlock_all()")
		require.NoError(t, err)
		held.Release()
	})
	_, err = l.holder.Exec(ctx, "select pg_advisory_lock($1)", gate)
	require.NoError(t, err)
	return l
}

func (l *orderLab) exec(sql string, args ...any) {
	l.Helper()
	_, err := l.pool.Exec(context.Background(), sql, args...)
	require.NoError(l, err)
}

func (l *orderLab) text(sql string, args ...any) (text string) {
	l.Helper()
	require.NoError(l, l.pool.QueryRow(context.Background(), "select coalesce(("+sql+")::text, '')", args...).Scan(&text))
	return text
}

func (l *orderLab) await(want, sql string, args ...any) {
	l.Helper()
	require.Eventually(l, func() bool { return l.text(sql, args...) == want }, jobtest.Eventually, jobtest.Tick)
}

// start starts a worker, which is killed at the test's end at the latest.
func (l *orderLab) start(flags ...string) (kill func()) {
	l.Helper()
	command := exec.Command(l.program, flags...) // #nosec G204 -- the example
	command.Env = append(os.Environ(), "DATABASE_URL="+l.url)
	var log bytes.Buffer
	command.Stderr = &log
	require.NoError(l, command.Start())
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = command.Process.Kill() // SIGKILL; it fails where the worker has ended by itself
			_ = command.Wait()
		}
	}
	l.Cleanup(func() {
		kill()
		if l.Failed() {
			l.Logf("a worker's log:\n%s", log.String())
		}
	})
	return kill
}

// buildOrder makes the worker's program.
func buildOrder(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "order")
	out, err := exec.Command("go", "build", "-o", program, "./order").CombinedOutput() // #nosec G204 -- the example
	require.NoError(t, err, string(out))
	return program
}

// sessions are those of workers, which the server ends a moment after they are killed.
const sessions = "from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and application_name <> 'test'"

// killAt kills a worker that has come to the gate. If its statement is lost, its transaction
// is rolled back, as if it had never arrived; if not, the statement succeeds, and nobody hears of it.
func (l *orderLab) killAt(kill func(), isLost bool) {
	l.Helper()
	l.await("1", `select count(*) from pg_locks l join pg_database d on d.oid = l.database
		where d.datname = current_database() and l.locktype = 'advisory' and l.objid = $1 and not l.granted`, gate)
	kill()
	l.exec("delete from public.gate")
	if isLost {
		l.exec("select pg_terminate_backend(pid) " + sessions)
		l.awaitNobody()
	}
	_, err := l.holder.Exec(context.Background(), "select pg_advisory_unlock($1)", gate)
	require.NoError(l, err)
	l.awaitNobody()
}

// awaitNobody waits until the server has ended the sessions of workers that were killed.
func (l *orderLab) awaitNobody() {
	l.Helper()
	l.await("0", "select count(*) "+sessions)
}

// What the outside services have done for an order that was shipped, for one whose card
// was declined, and for one that was not shipped in time.
const (
	shipped  = "charge order 7: 4200 cents, mail review order 7: how do you like it?, mail shipped order 7: in parcel RB42"
	declined = "mail declined order 7: the card was not accepted"
	late     = "charge order 7: 4200 cents, mail too late order 7: you have your money back, refund order 7: 4200 cents"
)

// TestOrderIsKilled kills the worker of an order once, at each moment that matters, and
// starts another one. Each order ends as it should; each step is stored once; the stock,
// which is in the job's database, is right; and the outside services are asked a
// second time only where the worker died between the effect and its record.
func TestOrderIsKilled(t *testing.T) {
	t.Parallel()
	program := buildOrder(t)

	for _, test := range []struct {
		name, moment string
		isLost       bool   // whether the statement is, at which the worker is killed
		outcome      string // what the outside services have done
		twice        string // what they were asked twice for
	}{
		{"before the effect in a transaction", "begin reserve", true, shipped, ""},
		{"between effect and record in a transaction", "done reserve", true, shipped, ""},
		{"before the effect", "begin charge", true, shipped, ""}, // and after the record of a transaction
		{"between effect and record", "done charge", true, shipped, "charge order 7"},
		{"after the record, of which it did not hear", "done charge", false, shipped, ""},
		{"before an event is taken that has come", "begin shipped order 7", true, shipped, ""},
		{"while an event is taken", "done shipped order 7", true, shipped, ""},
		{"after an event was taken", "begin mail shipped", true, shipped, ""},
		{"before a sleep", "begin before the review", true, shipped, ""},
		{"while a sleep ends", "done before the review", true, shipped, ""},
		{"between the last effect and its record", "done mail review", true, shipped, "mail review order 7"},
		{"after the last step", "completed", true, shipped, ""},
		{"between effect and record of the compensation", "done put back", true, declined, ""},
		{"after the compensation", "begin mail declined", true, declined, ""},
		{"between the refund and its record", "done refund", true, late, "refund order 7"},
		{"after the timeout and the refund", "begin put back", true, late, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := newOrderLab(t, program)
			l.exec("insert into public.gate values ($1)", test.moment)
			cents, flags, stock := 4200, []string{"-review-after", "10ms"}, "9"
			switch test.outcome {
			case shipped: // the event comes before the job does
				l.emitShipped()
			case declined:
				cents, stock = 999900, "10"
			case late:
				flags, stock = append(flags, "-ship-within", "10ms"), "10"
			}
			id := l.enqueue(cents)
			kill := l.start(flags...)
			l.killAt(kill, test.isLost)
			l.start(flags...)
			l.requireEnd(id, test.outcome, stock, test.twice)
		})
	}
}

// TestOrderWaits kills the worker while its order waits for the shipment, which comes while
// no worker lives, and again while the order sleeps. Meanwhile the job holds no slot.
func TestOrderWaits(t *testing.T) {
	t.Parallel()
	program := buildOrder(t)
	l := newOrderLab(t, program)
	id := l.enqueue(4200)
	asleep := "select format('%s at %s', j.state, s.name) from jobq.job j join jobq.step s on s.job_id = j.id where j.id = $1 and s.finished_at is null"

	kill := l.start()
	l.await("scheduled at shipped order 7", asleep, id)
	kill()
	l.awaitNobody()
	l.emitShipped()
	kill = l.start()
	l.await("scheduled at before the review", asleep, id)
	kill()
	l.awaitNobody()
	l.exec("update jobq.step set wake_at = now() where name = 'before the review'") // a test cannot wait for a week
	l.exec("select jobq.requeue($1)", id)
	l.start()
	l.requireEnd(id, shipped, "9", "")
	require.Equal(t, "0", l.text("select attempts from jobq.job where id = $1", id), "a wait uses no attempt, and no worker that died in it")
}

func (l *orderLab) emitShipped() {
	l.Helper()
	first, err := l.client.Emit(context.Background(), "shipped order 7", map[string]string{"parcel": "RB42"})
	require.NoError(l, err)
	require.True(l, first)
}

func (l *orderLab) enqueue(cents int) (id int64) {
	l.Helper()
	args := jobq.RawArgs{Name: "order", JSON: fmt.Appendf(nil, `{"id": 7, "item": "lamp", "cents": %d}`, cents)}
	// The program has a janitor inside.
	job, err := l.client.Enqueue(context.Background(), args, &jobq.EnqueueOptions{Queue: "orders", BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
	require.NoError(l, err)
	return job.ID
}

// requireEnd waits for the end of the order, and compares what has happened.
func (l *orderLab) requireEnd(id int64, outcome, stock, twice string) {
	l.Helper()
	l.await("true", "select finished_at is not null from jobq.job where id = $1", id)
	defer func() {
		if l.Failed() {
			l.Logf("attempts: %s", l.text("select jsonb_pretty(jsonb_agg(a order by a.lease_token)) from jobq.attempt a"))
		}
	}()
	require.Equal(l, "completed", l.text("select state from jobq.job where id = $1", id))
	require.Equal(l, outcome, l.text("select string_agg(key || ': ' || content, ', ' order by key) from outside.done"))
	require.Equal(l, stock, l.text("select pieces from public.stock"))
	require.Equal(l, twice, l.text("select string_agg(key, ', ') from (select key from outside.request group by key having count(*) > 1) r"))
	require.Equal(l, "0", l.text("select count(*) from jobq.step where finished_at is null"))
}
