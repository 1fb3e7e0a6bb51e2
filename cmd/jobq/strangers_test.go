package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// strangers is a server on which lesser roles do all that they may while jobs with every feature run.
type strangers struct {
	*testing.T
	owner    *pgxpool.Pool
	as       func(role string) string
	log      *syncBuffer
	rounds   int
	advisory map[string]bool // the advisory locks that jobq was seen to use, as arguments
	standFor time.Duration   // how long a round may take
}

// A lesser role never stops a greater one. For example, a viewer locks every table as hard as it may, every row and every
// advisory lock, writes odd rows, calls every function with odd arguments and keeps its transaction open. Jobs of every
// feature are still run, schedules fire, and operators act. What each role may do is read from the catalog: a right that
// sql/roles.sql gives one day too many is used here.
func TestLesserRolesStopNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	owner, as := rolesServer(t)
	_, err := owner.Exec(ctx, "create role my_nobody login")
	require.NoError(t, err)
	s := &strangers{T: t, owner: owner, as: as, advisory: map[string]bool{}, standFor: 2 * time.Minute}
	admin := s.pool("admin")
	client, err := jobq.NewClient(admin, nil)
	require.NoError(t, err)
	for _, settings := range []string{"'limited', '{\"max_running\": 2, \"rate_jobs\": 1000, \"rate_period\": \"1 s\"}'", "'keyed', '{\"key_limit\": 1, \"key_order\": \"hold\"}'"} {
		_, err = admin.Exec(ctx, "select jobq.act_queue_set('ana', "+settings+")")
		require.NoError(t, err)
	}
	_, err = operator.New(client, "ana").SetSchedule(ctx, jobq.Schedule{Name: "tick", Kind: "plain", Every: time.Second})
	require.NoError(t, err)

	end := s.work()
	s.round("none")
	end()
	for _, role := range []string{"nobody", "producer", "web", "runner", "viewer"} {
		letGo := s.attack(role)
		end := s.work() // with the locks taken before
		s.round(role)
		s.notify(role)
		s.round(role)
		end()
		letGo()
		t.Logf("%s: done", role)
	}
	require.Contains(t, s.log.String(), "holder_pid", "the janitor names who has its lock")
}

func (s *strangers) pool(role string) *pgxpool.Pool { return pgtest.Connect(s.T, s.as(role)) }

// work runs a worker and a janitor until the function is called that it returns.
func (s *strangers) work() (end func()) {
	s.Helper()
	s.log = &syncBuffer{}
	logger := slog.New(slog.NewTextHandler(s.log, nil))
	pool := s.pool("worker")
	client, err := jobq.NewClient(pool, nil)
	require.NoError(s, err)
	queue := worker.QueueConfig{Slots: 4}
	w, err := worker.New(client, &worker.Config{
		Queues: map[string]worker.QueueConfig{"default": queue, "limited": queue, "keyed": queue}, Logger: logger, PollInterval: time.Second, NoJanitor: true,
	})
	require.NoError(s, err)
	require.NoError(s, worker.HandleRaw(w, "plain", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
	require.NoError(s, worker.HandleRaw(w, "tx", func(ctx context.Context, job *worker.Job[jobq.RawArgs]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
	}, nil))
	require.NoError(s, worker.HandleRaw(w, "event", func(ctx context.Context, job *worker.Job[jobq.RawArgs]) error {
		if err := jobq.Sleep(ctx, "nap", time.Millisecond); err != nil {
			return err
		}
		_, err := jobq.WaitEvent[json.RawMessage](ctx, fmt.Sprintf("event of %d", job.ID()), 0)
		return err
	}, nil))
	j, err := janitor.New(client, &janitor.Config{
		ScanInterval: 500 * time.Millisecond, LeaderTTL: time.Second, LeaderRenew: 300 * time.Millisecond, LeaderRetry: 500 * time.Millisecond, Logger: logger,
	})
	require.NoError(s, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- w.Run(ctx) }()
	go func() { ended <- j.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(s, errors.Join(<-ended, <-ended))
		pool.Close()
	}
}

// round has a job of every feature added by a producer, and waits until all have completed, the schedule has fired, and
// an operator has acted.
func (s *strangers) round(during string) {
	s.Helper()
	s.rounds++
	ctx, cancel := context.WithTimeout(context.Background(), s.standFor)
	defer cancel()
	began := time.Now()
	producer := s.pool("producer")
	add := func(args string) (id int64) {
		s.Helper()
		require.NoError(s, producer.QueryRow(ctx, "select jobq.enqueue("+args+")").Scan(&id), "during %s: %s", during, args)
		return id
	}
	plain := add("'plain'")
	event := add("'event'")
	ids := []int64{
		plain, event, add("'tx'"), add("'plain', queue => 'limited'"), add("'tx', queue => 'limited'"),
		add("'plain', queue => 'keyed', partition_key => 'a'"), add("'plain', queue => 'keyed', partition_key => 'a'"), add("'plain', queue => 'keyed', partition_key => 'b'"),
		add(fmt.Sprintf("'plain', unique_key => 'key %d'", s.rounds)), add(fmt.Sprintf("'plain', after => array[%d]", plain)),
		add("'plain', run_at => now() + interval '300 ms'"),
	}
	_, err := producer.Exec(ctx, "select jobq.emit('event of ' || $1::bigint, '1')", event)
	require.NoError(s, err, "during %s", during)
	if during == "none" {
		s.see(ctx)
	}
	client, err := jobq.NewClient(s.pool("admin"), nil)
	require.NoError(s, err)
	o := operator.New(client, "ana")
	_, err = o.DeclareSchedules(ctx, operator.Declaration{App: "app", Schedules: []jobq.Schedule{{Name: fmt.Sprintf("declared %d", s.rounds), Kind: "plain", Every: time.Hour}}})
	require.NoError(s, err, "during %s", during)
	_, err = o.PauseQueue(ctx, "spare", "")
	require.NoError(s, err, "during %s", during)
	_, err = o.ResumeQueue(ctx, "spare")
	require.NoError(s, err, "during %s", during)
	ticked := query[time.Time](s.T, s.owner, "select coalesce(max(tick_at), '2000-01-01') from jobq.schedule_tick")
	require.Eventually(s, func() bool {
		return query[int](s.T, s.owner, "select count(*)::int from jobq.job where id = any($1) and state <> 'completed'", ids) == 0 &&
			query[bool](s.T, s.owner, "select exists (select from jobq.schedule_tick where tick_at > $1)", ticked)
	}, s.standFor, 20*time.Millisecond, "during %s: %s\n%s", during, s.unfinished(ids), s.log)
	s.Logf("during %s: a round took %s", during, time.Since(began).Round(time.Millisecond))
}

func (s *strangers) unfinished(ids []int64) fmt.Stringer {
	return laterString(func() string {
		return query[string](s.T, s.owner, "select coalesce(string_agg(j.id || ' ' || j.kind || ' of ' || j.queue || ': ' || j.state, '; '), 'none') from jobq.job j where j.id = any($1) and j.state <> 'completed'", ids)
	})
}

// laterString is a text that is made when it is printed.
type laterString func() string

func (l laterString) String() string { return l() }

// see notes for a while which advisory locks are taken.
func (s *strangers) see(ctx context.Context) {
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		rows, err := s.owner.Query(ctx, `select distinct case l.objsubid when 1 then (l.classid::bigint << 32 | l.objid::bigint)::text
			else l.classid::integer || ', ' || l.objid::integer end from pg_locks l where l.locktype = 'advisory'`)
		require.NoError(s, err)
		keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(s, err)
		for _, key := range keys {
			s.advisory[key] = true
		}
	}
	schema, err := db.NewSchema("jobq")
	require.NoError(s, err)
	for role := range db.LockRole(9) {
		class, object := schema.AdvisoryKey(role)
		s.advisory[fmt.Sprintf("%d, %d", class, object)] = true
	}
	for _, name := range []string{"default", "limited", "keyed", "hints.default", "hints.keyed", "announce "} {
		s.advisory[fmt.Sprintf("hashtextextended('jobq.%s', 0)", name)] = true
	}
	for id := range 1500 { // of jobs to come
		s.advisory[fmt.Sprintf("hashtextextended('jobq.event event of %d', 0)", id)] = true
	}
}

// attack has a role do and keep all that it may, and returns what lets go of it.
func (s *strangers) attack(role string) (letGo func()) {
	s.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.as(role))
	require.NoError(s, err)
	done := 0
	_, err = conn.Exec(ctx, "set statement_timeout = '2s'; set lock_timeout = '1s'")
	require.NoError(s, err)
	for key := range s.advisory {
		_, err = conn.Exec(ctx, "select pg_advisory_lock("+key+")")
		require.NoError(s, err, "%s: %s", role, key)
	}
	for _, sql := range s.writes(role) { // each committed
		if _, err := conn.Exec(ctx, sql); err == nil {
			done++
		}
	}
	tx, err := conn.Begin(ctx)
	require.NoError(s, err)
	_, err = tx.Exec(ctx, "select pg_current_xact_id()")
	require.NoError(s, err)
	for _, sql := range slices.Concat(s.locks(), s.calls(role)) { // all kept
		nested, err := tx.Begin(ctx)
		require.NoError(s, err)
		if _, err := nested.Exec(ctx, sql); err == nil {
			done++
			require.NoError(s, nested.Commit(ctx))
		} else {
			require.NoError(s, nested.Rollback(ctx))
		}
	}
	s.Logf("%s: %d locks of advisory keys, %d other things that it may do", role, len(s.advisory), done)
	return func() {
		require.NoError(s, tx.Rollback(ctx))
		require.NoError(s, conn.Close(ctx))
	}
}

// texts are the rows of a query of one column, as the owner.
func (s *strangers) texts(sql string, args ...any) []string {
	s.Helper()
	rows, err := s.owner.Query(context.Background(), sql, args...)
	require.NoError(s, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s, err)
	return texts
}

// locks are statements that lock each table in each mode, hardest first, and its rows.
func (s *strangers) locks() (statements []string) {
	tables := s.texts("select c.oid::regclass::text from pg_class c where c.relnamespace = 'jobq'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition order by 1")
	for _, table := range tables {
		for _, mode := range []string{"access exclusive", "exclusive", "share row exclusive", "share", "share update exclusive", "row exclusive", "row share", "access share"} {
			statements = append(statements, fmt.Sprintf("lock table %s in %s mode", table, mode))
		}
		for _, strength := range []string{"update", "no key update", "share", "key share"} {
			statements = append(statements, fmt.Sprintf("select from %s for %s", table, strength))
		}
	}
	return statements
}

// oddOf is an expression that makes two odd values of each type, with %s for the type.
const oddOf = `case
	when t in ('bigint', 'integer', 'smallint') then case n when 1 then '0' when 2 then '1' else '32767' end
	when t = 'text' then case n when 1 then '''''' when 2 then '''default''' else 'repeat(''x'', 100)' end
	when t = 'timestamp with time zone' then case n when 1 then '''infinity''' when 2 then 'now()' else '''-infinity''' end
	when t = 'interval' then case n when 1 then '''0''' when 2 then '''1 day''' else '''9 years''' end
	when t = 'boolean' then case n when 1 then 'true' else 'false' end
	when t in ('jsonb', 'json') then case n when 1 then '''{}''' when 2 then '''[1]''' else '''null''' end
	when t like '%[]' then case n when 1 then '''{}''' else '''{1}''' end
	when n = 3 then '''1''' else 'null' end`

// calls are statements that call each function that the role may call, with odd arguments.
func (s *strangers) calls(role string) []string {
	return s.texts(`
		select format('select jobq.%I(%s)', p.proname, (
				select string_agg(format('%s::%s', v, t), ', ' order by place)
					from (select place, t, `+oddOf+` as v from (select u.place, format_type(u.type, null) as t from unnest(p.proargtypes) with ordinality as u(type, place)) a) x))
			from pg_proc p, generate_series(1, 3) n
			where p.pronamespace = 'jobq'::regnamespace and p.prorettype <> 'trigger'::regtype and p.prokind = 'f'
				and has_function_privilege('my_' || $1, p.oid, 'execute')
			order by p.proname, n`, role)
}

// writes are statements that write to each table what the role may write, with odd values: a row, and each column alone.
func (s *strangers) writes(role string) []string {
	return s.texts(`
		with columns as (
			select c.oid::regclass as tab, a.attname as name, a.attnum, format_type(a.atttypid, null) as t,
					has_column_privilege('my_' || $1, c.oid, a.attnum, 'insert') as inserts, has_column_privilege('my_' || $1, c.oid, a.attnum, 'update') as updates,
					has_table_privilege('my_' || $1, c.oid, 'delete') as deletes
				from pg_class c join pg_attribute a on a.attrelid = c.oid
				where c.relnamespace = 'jobq'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and a.attnum > 0 and not a.attisdropped
		), odd as (select c.*, n, `+oddOf+` as v from columns c, generate_series(1, 3) n)
		select format('insert into %s (%s) values (%s)', o.tab, string_agg(quote_ident(o.name), ', ' order by o.attnum), string_agg(o.v, ', ' order by o.attnum))
			from odd o where o.inserts group by o.tab, o.n
		union all
		select format('insert into %s (kind, %I) values (''plain'', %s)', o.tab, o.name, o.v) from odd o where o.inserts and o.name <> 'kind'
		union all
		select format('update %s set %I = %s', o.tab, o.name, o.v) from odd o where o.updates
		union all
		select distinct format('delete from %s', o.tab) from odd o where o.deletes`, role)
}

// notify sends odd notifications on all channels, as a role.
func (s *strangers) notify(role string) {
	s.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.as(role))
	require.NoError(s, err)
	defer func() { _ = conn.Close(ctx) }()
	for _, topic := range []string{"work", "head", "taken", "due", "cancel", "drain", "room", "settings", "event", "ended", "watch", "schedule"} {
		for _, payload := range []string{"", "0", "-1", "9e999", "NaN", "1 limited", "18446744073709551615 keyed", "1 plain default", strings.Repeat("9", 7999), "\x01\u202e"} {
			_, err := conn.Exec(ctx, "select pg_notify($1, $2)", db.Channel("jobq", topic), payload)
			require.NoError(s, err)
		}
	}
}
