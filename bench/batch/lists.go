package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/internal/postgres"
)

// The history that both layouts are filled with: of a thousand jobs, one is
// cancelled and ten fail; every tenth is of the queue mail, every ten
// thousandth of queue and kind rare; claims are of 500 jobs, over nine days,
// and the last two still run.
const (
	historyDays  = 9
	historyLease = 500
	historyRows  = `
select g.id, g.id / 500 as lease_id, (g.id % 500 + 1)::smallint as slot, g.id / 500 >= $3::bigint / 500 - 2 as live,
    now() - ($4::integer * interval '1 day') * (1 - (g.id / 500)::float8 / ($3::bigint / 500)) as at,
    (case when g.id / 500 >= $3::bigint / 500 - 2 then null when g.id % 1000 = 7 then 'cancelled' when g.id % 100 = 3 then 'failed' end)::jobq.job_state as state,
    case when g.id % 10000 = 5 then 'rare' when g.id % 10 = 1 then 'mail' else 'default' end as queue,
    case when g.id % 10000 = 5 then 'rare' else 'k' || g.id % 5 end as kind,
    jsonb_build_object('d', md5(g.id::text), 'e', md5((-g.id)::text)) as args,
    case when g.id % 100 = 3 then (array['disk full', 'timed out', 'no such host', 'refused', 'bad input'])[1 + g.id / 100 % 5] end as error
  from generate_series($1::bigint, $2::bigint - 1) g(id)`

	fillFinished = `with g as (` + historyRows + `), r as (
  insert into jobq.running (id, lease_token, lease_expires_at, started_at, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart,
      queue, kind, lease_owner, args)
    select g.id, 1, now() + interval '1 hour', g.at, g.at, g.at, 0, 0, 25, 0, false, g.queue, g.kind, 'worker-' || g.lease_id % 4, g.args from g where g.live
)
insert into jobq.finished (id, finished_at, lease_token, started_at, run_at, created_at, state, priority, attempts, max_attempts, crashes, args_apart,
    queue, kind, lease_owner, args, last_error)
  select g.id, g.at + g.slot * interval '2 ms', 1, g.at, g.at, g.at, coalesce(g.state, 'completed'), 0, 0, 25, 0, false, g.queue, g.kind,
      'worker-' || g.lease_id % 4, g.args, g.error
    from g
    where not g.live`

	fillRun = `with g as materialized (` + historyRows + `), l as (
  insert into jobq.lease (id, claimed_at, expires_at, owner, queue, ended, job_ids)
    select jobq.lease_day((min(g.at) at time zone 'UTC')::date) + g.lease_id, min(g.at), min(g.at) + interval '60 s',
        'worker-' || g.lease_id % 4, 'default', array_agg(null::smallint), array_agg(g.id order by g.slot)
      from g
      where g.live
      group by g.lease_id
), past as (
  insert into jobq.past_lease (id, claimed_at, owner, queue, ended)
    select jobq.lease_day((min(g.at) at time zone 'UTC')::date) + g.lease_id, min(g.at), 'worker-' || g.lease_id % 4, 'default',
        array_agg(case when g.state is null then g.slot * 2 else -1 end order by g.slot)
      from g
      where not g.live
      group by g.lease_id
)
insert into jobq.run (id, lease_id, slot, run_at, created_at, finished_at, state, priority, attempts, max_attempts, crashes, args_apart,
    queue, kind, args, last_error)
  select g.id, jobq.lease_day((g.at at time zone 'UTC')::date) + g.lease_id, g.slot, g.at, g.at, case when g.state is not null then g.at + g.slot * interval '2 ms' end, g.state, 0, 0, 25, 0, false,
      g.queue, g.kind, g.args, g.error
    from g`
)

// list is one thing that people look at, in both layouts.
type list struct {
	name          string
	today, second string
	args          []any
}

// runList is a page of the second layout that shows what JobList's does, of
// runs. A condition on l must be true of no row that has none (coalesce), or the
// join turns into one that Memoize does not help.
type runList struct {
	condition string // on r and l
	order     string // "" by id
	live      bool   // only what runs: by way of the leases that are open
	size      int
}

func (p runList) from() string {
	if p.live {
		return `(
      select j.id, x.id as lease_id, x.claimed_at, x.ended, x.owner, x.expires_at
        from jobq.lease x
        cross join lateral rows from (unnest(x.job_ids), unnest(x.ended)) as j(id, ended)
        where j.ended is null
        order by j.id desc
    ) l
    cross join lateral (
      select x.* from jobq.run x where x.id = l.id and x.lease_id = l.lease_id and x.state is null limit 1
    ) r
    where ` + p.condition
	}
	return "jobq.run r\n    " + leaseOfRun + "\n    where " + p.condition
}

func (p runList) sql() string {
	order := p.order
	switch {
	case order == "" && p.live:
		order = "l.id desc" // sorts ids alone, and looks up those of the page
	case order == "":
		order = "r.id desc"
	}
	from := p.from()
	if !p.live && !strings.Contains(p.condition, "l.") { // first the page, then its leases
		from = fmt.Sprintf("(select r.* from jobq.run r where %s order by %s limit %d) r\n    %s", p.condition, order, p.size, leaseOfRun)
	}
	return fmt.Sprintf(`select r.id, coalesce(r.state::text, case when l.ended[r.slot] >= 0 then 'completed' else 'running' end) as state, r.queue, r.kind,
      r.priority, r.attempts, r.max_attempts, r.crashes, r.lease_id, r.run_at, r.created_at, l.claimed_at as started_at,
      %s as finished_at, l.owner, l.expires_at, r.cancel_requested_at,
      coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint as timeout_ms, r.unique_key, r.last_error, r.tags, r.metadata
    from %s
    order by %s limit %d`, finishedAt, from, order, p.size)
}

// count is how many there are, up to the size; without the leases where the
// condition does not ask them.
func (p runList) count() string {
	from := p.from()
	if !strings.Contains(p.condition, "l.") {
		from = "jobq.run r where " + p.condition
	}
	return fmt.Sprintf("select count(*) from (select from %s limit %d) c", from, p.size)
}

// finishedSince is the newest 50 that completed since a moment. What did so
// plainly was claimed at most 33 seconds before, which leaves out all days but
// one or two; the others have an index.
func finishedSince(moment string) string {
	plain := runList{condition: "r.state is null and l.ended[r.slot] >= 0 and " + finishedAt + " > " + moment +
		" and r.lease_id >= jobq.lease_day(((" + moment + " - interval '33 s') at time zone 'UTC')::date)", size: 51}
	own := runList{condition: "r.state = 'completed' and r.finished_at > " + moment, size: 51}
	return "select * from ((" + plain.sql() + ") union all (" + own.sql() + ")) page order by id desc limit 51"
}

// Conditions of states on r and l.
const (
	isCompleted = "(r.state = 'completed' or (r.state is null and l.ended[r.slot] >= 0))"
	isOver      = "(r.state is not null or l.ended[r.slot] >= 0)"
	finishedAt  = "coalesce(r.finished_at, l.claimed_at + nullif(l.ended[r.slot], -1) * interval '1 ms')"
)

// lists are measured for a history of so many jobs.
func lists(jobs int) []list {
	over := []string{"completed", "failed", "cancelled"}
	page := func(sort db.JobSort, states []string, condition string) string {
		sql, _ := db.JobPage{States: states, Sort: sort, Size: 51, Condition: func(db.Stage, int) (string, []any) { return condition, nil }}.SQL()
		return strings.ReplaceAll(sql, "$1::integer", "51")
	}
	pageOf := func(name string, sort db.JobSort, states []string, condition string, run runList) list {
		run.size = 51
		return list{name: name, today: page(sort, states, condition), second: run.sql()}
	}
	counted := func(name string, states []string, condition, second string) list {
		sql := strings.ReplaceAll(page(db.SortID, states, condition), "limit 51", "limit 10000")
		return list{
			name: name, today: "select count(*) from (" + strings.ReplaceAll(strings.ReplaceAll(sql, "order by j.id desc", ""), "order by id desc", "") + ") c",
			second: runList{condition: second, size: 10_000}.count(),
		}
	}
	deep := fmt.Sprintf("< %d", jobs/2)
	view := func(name string, id int) list {
		return list{name, "select j.* from jobq.job j where j.id = $1", "select j.* from jobq.run_job j where j.id = $1", []any{int64(id)}}
	}
	return []list{
		pageOf("newest 50, running or ended", db.SortID, append(over, "running"), "true", runList{condition: "true"}),
		pageOf("completed", db.SortID, over[:1], "true", runList{condition: isCompleted}),
		pageOf("completed, from the middle on", db.SortID, over[:1], "j.id "+deep, runList{condition: isCompleted + " and r.id " + deep}),
		pageOf("failed, last ended first", db.SortFinished, over[1:2], "true", runList{condition: "r.state = 'failed'", order: "r.finished_at desc, r.id desc"}),
		pageOf("failed, by id", db.SortID, over[1:2], "true", runList{condition: "r.state = 'failed'"}),
		pageOf("failed, error contains disk", db.SortID, over[1:2], "j.last_error ilike '%disk%'", runList{condition: "r.state = 'failed' and r.last_error ilike '%disk%'"}),
		pageOf("ended, queue mail (10 %)", db.SortID, over, "j.queue = 'mail'", runList{condition: isOver + " and r.queue = 'mail'"}),
		pageOf("ended, queue rare (0.01 %)", db.SortID, over, "j.queue = 'rare'", runList{condition: isOver + " and r.queue = 'rare'"}),
		pageOf("ended, kind rare (0.01 %)", db.SortID, over, "j.kind = 'rare'", runList{condition: isOver + " and r.kind = 'rare'"}),
		{
			name: "completed within 1 hour", today: page(db.SortID, over[:1], "j.finished_at > now() - interval '1 hour'"),
			second: finishedSince("now() - interval '1 hour'"),
		},
		pageOf("ended, of one worker", db.SortID, over, "j.lease_owner = 'worker-3'", runList{condition: isOver + " and coalesce(l.owner, '') = 'worker-3'"}),
		pageOf("running", db.SortID, []string{"running"}, "true", runList{condition: "true", live: true}),
		counted("count completed, to 10,000", over[:1], "true", isCompleted),
		counted("count queue mail, to 10,000", over, "j.queue = 'mail'", isOver+" and r.queue = 'mail'"),
		counted("count failed, to 10,000", over[1:2], "true", "r.state = 'failed'"),
		{name: "count running by queue", today: "select r.queue, count(*) from jobq.running r group by 1", second: `select l.queue, sum(cardinality(array_positions(l.ended, null))) from jobq.lease l group by 1`},
		view("view, one completed by id", jobs/3), view("view, one failed by id", jobs/300*100+3), view("view, one running by id", jobs-5),
		{name: "view, count by state, all", today: "select j.state, count(*) from jobq.job j group by 1", second: "select j.state, count(*) from jobq.run_job j group by 1"},
	}
}

// runLists fills both layouts with a history and looks at it.
func runLists(ctx context.Context, server *postgres.Server, jobs, rounds int) error {
	jobs = (jobs/historyLease + 1) * historyLease
	first, other := standard(today()), standard(second())
	first.setUp = fmt.Sprintf("select jobq.partition_add('finished', (now() at time zone 'UTC')::date - ahead) from generate_series(1, %d) ahead;", historyDays)
	other.setUp = secondTables(fmt.Sprint(historyDays))
	beds := make([]*bed, 2)
	for i, p := range []plan{first, other} {
		p.connections, p.session = 1, "set synchronous_commit = off"
		b, err := makeBed(ctx, server.URL("postgres"), p, i)
		if err != nil {
			return err
		}
		defer b.close(ctx)
		beds[i] = b
		if err := b.fillHistory(ctx, jobs); err != nil {
			return err
		}
	}
	return reportLists(ctx, os.Stdout, beds, lists(jobs), rounds)
}

// fillHistory makes a history of so many jobs, in steps.
func (b *bed) fillHistory(ctx context.Context, jobs int) error {
	sql := fillFinished
	if b.second {
		sql = fillRun
	}
	const step = 250_000
	for from := historyLease; from < jobs; from += step {
		if _, err := b.conns[0].Exec(ctx, b.schema.SQL(sql), from, min(from+step, jobs), jobs, historyDays); err != nil {
			return fmt.Errorf("%s: history: %w", b.name, err)
		}
	}
	_, err := b.conns[0].Exec(ctx, "vacuum analyze")
	return err
}

// reportLists prints what each list takes in both layouts: the median of the
// rounds, and the blocks that its last round has touched.
func reportLists(ctx context.Context, out io.Writer, beds []*bed, all []list, rounds int) error {
	fmt.Fprintln(out, "| | rows | today, ms | blocks | second layout, ms | blocks |\n|---|---:|---:|---:|---:|---:|")
	for _, l := range all {
		line := fmt.Sprintf("| %s |", l.name)
		for i, sql := range []string{l.today, l.second} {
			millis, rows, blocks, err := beds[i].timed(ctx, sql, l.args, rounds)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", beds[i].name, l.name, err)
			}
			if i == 0 {
				line += fmt.Sprintf(" %d |", rows)
			}
			line += fmt.Sprintf(" %.2f | %d |", millis, blocks)
		}
		fmt.Fprintln(out, line)
	}
	return nil
}

// timed is how long a query takes, how many rows it has, and how many blocks it touches.
func (b *bed) timed(ctx context.Context, sql string, args []any, rounds int) (millis float64, rows int, blocks int64, err error) {
	conn := b.conns[0]
	sql = b.schema.SQL(sql)
	times := make([]float64, 0, rounds)
	for range rounds + 1 { // the first warms up
		started := time.Now()
		tag, err := conn.Exec(ctx, sql, args...)
		if err != nil {
			return 0, 0, 0, err
		}
		times = append(times, time.Since(started).Seconds()*1000)
		rows = int(tag.RowsAffected())
	}
	var plan []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	err = conn.QueryRow(ctx, "explain (analyze, buffers, format json) "+sql, args...).Scan(&plan)
	if err != nil {
		return 0, 0, 0, err
	}
	return measure.SpreadOf(times[1:]).Median, rows, plan[0].Plan.Hit + plan[0].Plan.Read, nil
}
