package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// listener listens to the topics, and returns what tells which notifications a call has sent,
// found between it and a mark behind it.
func (q *queue) listener(topics ...string) func(call func()) []string {
	q.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, q.pool.Config().ConnString())
	require.NoError(q, err)
	q.Cleanup(func() { require.NoError(q, conn.Close(ctx)) })
	names := make(map[string]string)
	for _, topic := range topics {
		names[db.Channel("jobq", topic)] = topic
		_, err := conn.Exec(ctx, "listen "+db.Channel("jobq", topic))
		require.NoError(q, err)
	}
	_, err = conn.Exec(ctx, "listen done")
	require.NoError(q, err)
	return func(call func()) (heard []string) {
		q.Helper()
		call()
		q.exec("notify done")
		ctx, cancel := context.WithTimeout(ctx, eventually)
		defer cancel()
		for {
			notification, err := conn.WaitForNotification(ctx)
			require.NoError(q, err)
			if notification.Channel == "done" {
				slices.Sort(heard)
				return heard
			}
			topic, payload := names[notification.Channel], notification.Payload
			if topic == db.TopicWork || topic == db.TopicHead {
				transaction, queue, _ := strings.Cut(payload, " ")
				_, err := strconv.ParseUint(transaction, 10, 64)
				require.NoError(q, err)
				payload = queue
			}
			heard = append(heard, topic+" "+payload)
		}
	}
}

// What wakes whom: one notification per queue and transaction for available
// jobs, one for the earliest of those that are due later, one per wish to
// cancel a running job, and none where there is nothing to wake for.
func TestNotifications(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	hear := q.listener(db.TopicWork, db.TopicHead, db.TopicDue, db.TopicCancel)
	heard := func(sql string, args ...any) []string { return hear(func() { q.exec(sql, args...) }) }
	require.Empty(t, heard("select jobq.enqueue('k')"), "nobody waits")
	q.exec("delete from jobq.pending")
	q.exec("select setval('jobq.job_id_seq', 1, false)")
	news, err := q.queries.WaitAnnounce(ctx, "default", 3600)
	require.NoError(t, err)
	require.True(t, news)
	news, err = q.queries.WaitAnnounce(ctx, "default", 15)
	require.NoError(t, err)
	require.False(t, news)
	require.Equal(t, []string{"work default"}, heard("select jobq.enqueue('k')"))
	other := q.otherGroup()
	require.Empty(t, heard("select jobq.enqueue('k', queue => $1)", other), "nobody waits for jobs of this queue")
	q.exec("delete from jobq.pending where queue = $1", other)
	q.exec("select setval('jobq.job_id_seq', 1, true)")
	q.exec("select jobq.wait_announce(q, 3600) from unnest(array['a', 'b', 'c']) q")
	require.Equal(t, []string{"work a", "work b"}, heard("select jobq.enqueue('k', queue => q) from unnest(array['a', 'b', 'a', 'b']) q"))
	require.Equal(t, []string{"work c"}, heard("insert into jobq.pending (kind, queue) select 'k', 'c' from generate_series(1, 100)"))

	require.Empty(t, heard("select jobq.enqueue('k', run_at => now() + interval '1 minute')"), "the janitor looks all the time, or there is none")
	q.exec("select jobq.sleep_announce(10000)")
	require.Empty(t, heard("select jobq.enqueue('k', run_at => now() + interval '1 minute')"), "the janitor looks before that")
	q.exec("select jobq.sleep_announce(3600000)")
	q.exec("delete from jobq.pending where run_at > now()")
	q.exec("select setval('jobq.job_id_seq', 109, true)")
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	due := heard("select * from jobq.enqueue_many(jsonb_build_array(jsonb_build_object('kind', 'k', 'run_at', $1::text), jsonb_build_object('kind', 'k', 'run_at', $2::text)))",
		soon.Format(time.RFC3339), soon.Add(time.Hour).Format(time.RFC3339))
	require.Len(t, due, 1)
	epoch, err := strconv.ParseFloat(strings.TrimPrefix(due[0], "due "), 64)
	require.NoError(t, err)
	require.InDelta(t, soon.Unix(), epoch, 0.001)

	require.Empty(t, heard("select jobq.cancel(2)"), "a waiting job")
	require.Equal(t, []string{"work a"}, heard("select jobq.requeue(2)"))
	require.Len(t, q.claim("a", 1), 1)
	require.Equal(t, []string{"cancel 1"}, heard("select jobq.cancel(1)"))
	scheduled := q.number("select min(id) from jobq.pending where position is null")
	require.Equal(t, []string{"work default"}, heard("select jobq.requeue($1)", scheduled))
	require.Empty(t, heard("select jobq.requeue($1)", scheduled), "it is available already")
	require.Equal(t, []string{"head default"}, heard(`select jobq.job_edit($1, '{"tags": ["t"]}', '{}')`, scheduled), "it was locked")
	require.Equal(t, []string{"head default"}, heard(`select jobq.act('me', 'requeue', array[$1::bigint], array[''], null, null, null, null)`, scheduled), "likewise")
	require.Equal(t, []string{"work b"}, heard(`select jobq.job_edit($1, '{"queue": "b"}', '{}')`, scheduled))

	q.exec("update jobq.pending set run_at = now() where position is null")
	require.Equal(t, []string{"work default"}, heard(q.schema.SQL(db.JobPromote), db.DueFrom(time.Time{}), 0, 100))
	require.Empty(t, heard(q.schema.SQL(db.JobPromote), db.DueFrom(time.Time{}), 0, 100))
	require.Empty(t, heard("insert into jobq.queue (name, paused_at) values ('a', now())"))
	require.Equal(t, []string{"head a"}, heard("select jobq.act_queue('me', 'resume', 'a', null)"))
	require.Empty(t, heard("select jobq.act_queue('me', 'resume', 'a', null)"))
	q.exec(`insert into jobq.worker (id, pid, hostname, version, queues, kinds) values ('w', 1, 'h', 'v', '{"a": 1, "b": 2}', '{k}'), ('x', 1, 'h', 'v', '{"c": 1}', '{l}')`)
	require.Empty(t, heard("select jobq.act_kind('me', 'kind_pause', 'k', null)"))
	require.Equal(t, []string{"head a", "head b"}, heard("select jobq.act_kind('me', 'kind_resume', 'k', null)"), "where workers have the kind")
	require.Empty(t, heard("select jobq.act_kind('me', 'kind_resume', 'k', null)"))
	q.exec("delete from jobq.pending")
	q.exec("insert into jobq.pending (kind) values ('k')")
	job := q.claim("a", 1)[0]
	require.Equal(t, []string{"work default"}, heard("select 1"), "of the insert")
	q.expire()
	require.Equal(t, []string{"work default"}, heard(q.schema.SQL(db.LeaseReap), []string(nil), []int64(nil), []int64(nil), 100, []int64(nil), "test"))
	require.Equal(t, job.ID, q.claim("a", 1)[0].ID)
	q.exec("update jobq.run set crashes = 0") // or the second loss makes it a suspect, which waits
	q.exec("insert into jobq.queue (name, redelivery) values ('default', 'head')")
	q.expire()
	require.Equal(t, []string{"head default", "work default"}, heard(q.schema.SQL(db.LeaseReap), []string(nil), []int64(nil), []int64(nil), 100, []int64(nil), "test"))
	job = q.claim("a", 1)[0]
	q.end(job, db.Ending{Outcome: "released"})
	require.Equal(t, []string{"head default", "work default"}, heard("select 1"), "of the release")
}

// Due jobs are promoted earliest first, to the tail of the line, no more than
// asked for, and not before they are due.
func TestPromote(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', run_at => now() + interval '1 hour') from generate_series(1, 5)")
	q.exec("select jobq.enqueue('k')")
	promote := func() int64 {
		promoted, err := q.schema.Promote(ctx, q.pool, db.DuePlace{}, 2)
		require.NoError(t, err)
		return promoted.Due
	}
	require.Zero(t, promote())
	q.exec("update jobq.pending set run_at = now() - id * interval '1 s' where position is null and id > 2")
	require.EqualValues(t, 2, promote())
	require.Equal(t, 2, q.number("select count(*) from jobq.pending where position is not null and id in (5, 4)"))
	require.EqualValues(t, 1, promote())
	require.Zero(t, promote())
	require.EqualValues(t, 6, q.claim("a", 1)[0].ID, "who was there first")
}

// The janitor is told the next moment at which there is something to do, and
// which of the two it is.
func TestNextDue(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	// Less than the 60 s that leases of queues without settings have.
	const longest = 55_000
	next := func(jobDue, leaseEnds bool) float64 {
		row, err := q.nextDue(longest, longest, true)
		require.NoError(t, err)
		require.Equal(t, jobDue, row.JobDue)
		require.Equal(t, leaseEnds, row.LeaseEnds)
		require.LessOrEqual(t, row.Ms, row.LeasesMs+1, "the clock is read for each, and milliseconds are rounded")
		return float64(row.Ms)
	}
	// A moment is that far off when it was written, and nearer when it is told.
	about := func(ms, told float64, what string) {
		require.LessOrEqual(t, told, ms, what)
		require.Greater(t, told, ms-10_000, what)
	}
	about(longest, next(false, false), "nothing is due")
	q.exec("select jobq.enqueue('k', run_at => now() + interval '10 minutes')")
	about(longest, next(false, false), "nothing is due before")
	q.exec("select jobq.enqueue('k', run_at => now() + interval '44 s')")
	about(44_000, next(true, false), "a job")
	q.exec("select jobq.enqueue('k')")
	q.claim("a", 1)
	q.change(pgtest.Columns{"lease_expires_at": "now() + interval '33 s'"}, "true")
	about(33_000, next(false, true), "a lease")
	q.change(pgtest.Columns{"lease_expires_at": "now() - interval '5 s'"}, "true")
	require.Negative(t, next(false, true))

	known, err := q.nextDue(longest, 22_000, false)
	require.NoError(t, err)
	require.False(t, known.JobDue || known.LeaseEnds, "it has not looked")
	about(22_000, float64(known.Ms), "what an earlier scan has found")
	q.exec("insert into jobq.queue (name, lease) values ('short', '11 s')")
	require.NoError(t, pgtest.DeleteRunning(context.Background(), q.pool, "true"))
	about(11_000, next(false, false), "a lease that is taken now could end then")
}

// Workers announce one after the other: the announcement of one that is shorter could take the
// place of a longer one otherwise, and its worker would not be notified. One that waits for a second goes on without its turn.
func TestAnnouncementsTakeTurns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	first, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = first.Rollback(ctx) }()
	_, err = q.queries.WithTx(first).WaitAnnounce(ctx, "default", 1800)
	require.NoError(t, err)
	announce := func(seconds int64) time.Duration {
		began := time.Now()
		_, err := q.queries.WaitAnnounce(ctx, "default", seconds)
		require.NoError(t, err)
		return time.Since(began)
	}
	require.GreaterOrEqual(t, announce(3500), time.Second, "it waits for its turn")
	quick := func(seconds int64, why string) {
		t.Helper()
		for tries := 0; announce(seconds) >= time.Second; tries++ { // the machine may be busy
			require.Less(t, tries, 20, why)
		}
	}
	quick(1, "somebody's holds for longer: it needs no turn")
	require.NoError(t, first.Commit(ctx))
	quick(1, "likewise")
	require.Equal(t, "true", q.text("select (pg_sequence_last_value(jobq.waiting_group('default')) >= extract(epoch from clock_timestamp()) + 3000)::text"))
}

// A queue that is paused has workers look at its settings as long as none has asked, and nobody
// is told while none waits.
func TestKeyNotificationsOfAPausedQueue(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.act_queue('test', 'pause', 'default', null)")
	hear := q.listener(db.TopicWork, db.TopicSettings)
	enqueue := func() { q.enqueueKeyed("a", 1) }
	require.Empty(t, hear(enqueue), "no worker waits")
	_, err := q.queries.WaitAnnounce(context.Background(), "default", 3600)
	require.NoError(t, err)
	require.Equal(t, []string{"settings default", "work default"}, hear(enqueue))
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	require.Equal(t, []string{"work default"}, hear(enqueue), "a worker knows")
}

// The first job with a key has workers look at the settings of its queue, until one has
// claimed. Idle workers hear of room in a key where the transaction that makes it does not use it.
func TestKeyNotifications(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 1}`)
	hear := q.listener(db.TopicWork, db.TopicSettings)
	_, err := q.queries.WaitAnnounce(context.Background(), "default", 3600)
	require.NoError(t, err)
	var jobs []db.KeyedJob
	exchange := func(exchange db.Exchange) []string {
		t.Helper()
		return hear(func() { jobs = q.exchange(exchange).Keyed })
	}
	enqueue := func() { q.enqueueKeyed("a", 1) }
	require.Equal(t, []string{"settings default", "work default"}, hear(enqueue))
	require.Equal(t, []string{"settings default", "work default"}, hear(enqueue), "nobody has claimed yet")
	require.Empty(t, exchange(keyed("w", 10)))
	require.Len(t, jobs, 1)
	require.Equal(t, []string{"work default"}, hear(enqueue))
	require.Empty(t, exchange(ended(keyed("w", 10), jobs...)), "the room is used")
	require.Len(t, jobs, 1)
	other := ended(keyed("w", 10), jobs...)
	other.Claim.Kinds = []string{"other"}
	require.Equal(t, []string{"work default"}, exchange(other), "it is left to workers with its kind")
	require.Empty(t, exchange(keyed("w", 10)))
	require.Len(t, jobs, 1)
	q.enqueueKeyed("a", 1)
	require.Equal(t, []string{"work default", "work default"}, exchange(ended(db.Exchange{Owner: "w", Queue: "default"}, jobs...)), "of the insert, and since it does not claim")
	require.Empty(t, exchange(keyed("w", 10)))
	require.Len(t, jobs, 1)
	q.enqueueKeyed("a", 1)
	require.Equal(t, []string{"work default"}, hear(func() {}), "of the insert")
	q.exec("update jobq.run set max_attempts = 1 where id = $1", jobs[0].ID)
	q.exec("update jobq.lease set expires_at = now() - interval '1 s'")
	require.Equal(t, []string{"work default"}, hear(q.reap), "the job has failed, and the next one can run")
}

// A claim that leaves jobs of a new key wakes idle workers: the key had no lane before, so none of them could take from it.
func TestNewKeyThatIsLeftIsNotified(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.enqueueKeyed("a", 5)
	_, err := q.queries.WaitAnnounce(context.Background(), "default", 3600)
	require.NoError(t, err)
	hear := q.listener(db.TopicWork)
	require.Equal(t, []string{"work default"}, hear(func() { require.Len(t, q.exchange(keyed("w", 2)).Keyed, 2) }))
	require.Empty(t, hear(func() { require.Len(t, q.exchange(keyed("w", 10)).Keyed, 3) }))
}

// While the server's queue of notifications is almost full, nothing notifies, and so nothing fails for it: not an insert
// while a worker waits, not a wish to cancel.
func TestNothingNotifiesIntoAFullQueue(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	hear := q.listener(db.TopicWork, db.TopicHead, db.TopicDue, db.TopicCancel)
	_, err := q.queries.WaitAnnounce(ctx, "default", 3600)
	require.NoError(t, err)
	q.exec("select jobq.sleep_announce(3600000)")
	all := func() {
		q.exec("select jobq.enqueue('k')")
		q.exec("select jobq.enqueue('k', run_at => now() + interval '1 minute')")
		q.exec("select jobq.cancel($1)", q.claim("w", 1)[0].ID)
	}
	require.Len(t, hear(all), 3)
	q.exec("create or replace function jobq.notifications_full() returns boolean language sql return true")
	require.Empty(t, hear(all))
}

// With jobq.notify off nothing notifies, so that a transaction with jobs of every sort can be prepared (two-phase commit)
// while a worker waits. As long as it is prepared it keeps nobody else from waking workers.
func TestNotifyOffLetsPrepare(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, off := range []string{"off", "OFF", "false", "no", "0"} {
		q := setUp(t)
		hear := q.listener(db.TopicWork, db.TopicHead, db.TopicDue, db.TopicCancel)
		q.exec("select jobq.enqueue('k')")
		running := q.claim("w", 1)[0].ID
		_, err := q.queries.WaitAnnounce(ctx, "default", 3600)
		require.NoError(t, err)
		q.exec("select jobq.sleep_announce(3600000)")
		adds := []string{
			"select jobq.enqueue('k')", "select jobq.enqueue('k', partition_key => 'a')", "select jobq.enqueue('k', unique_key => 'u')",
			"select jobq.enqueue('k', run_at => now() + interval '1 minute')", "select jobq.enqueue_many('[{\"kind\": \"k\"}]')",
		}
		prepare := func(settings string) error {
			conn, err := q.pool.Acquire(ctx)
			require.NoError(t, err)
			defer conn.Release()
			for _, sql := range append([]string{"begin", settings, fmt.Sprintf("select jobq.cancel(%d)", running)}, adds...) {
				_, err := conn.Exec(ctx, sql)
				require.NoError(t, err, sql)
			}
			_, err = conn.Exec(ctx, "prepare transaction 'both'")
			return err
		}
		require.ErrorContains(t, prepare("set local jobq.notify = on"), "NOTIFY")
		require.Empty(t, hear(func() { require.NoError(t, prepare("set local jobq.notify = '"+off+"'")) }), off)
		require.Equal(t, []string{"work default"}, hear(func() { q.exec("select jobq.enqueue('k')") }), "others wake workers meanwhile")
		require.Empty(t, hear(func() { q.exec("commit prepared 'both'") }), off)
		require.Equal(t, 6, q.number("select count(*) from jobq.pending"))
	}
}

// What would notify by itself would fail when the queue of notifications is full.
func TestAllNotifyByOneFunction(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../sql/[sq][cu]*/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	found := 0
	for _, file := range files {
		content, err := os.ReadFile(file) // #nosec G304 -- our own
		require.NoError(t, err)
		found += strings.Count(string(content), "pg_notify(")
	}
	require.Equal(t, 1, found, "jobq.notify alone calls pg_notify")
}
