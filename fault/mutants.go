package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// functionChange is what a mutant has in place of a text in one of jobq's functions, wherever
// its lines end; or, with an empty from, in place of the whole function.
type functionChange struct{ function, from, to string }

// functionChanges are what each mutant of jobq's functions changes, before anything runs. What the
// others change is compiled into jobq: see internal/mutant.
var functionChanges = map[string][]functionChange{
	awaitUnannounced: {{"jobq.run_await(bigint, text, bigint[], bigint[], jobq.job_state[])", "look_soon(open_jobs, true)", "look_soon('{}', true)"}},
	eventUnlocked: {{
		"jobq.event_lock(text, boolean, text)", "",
		"create or replace function jobq.event_lock(name text, alone boolean, own_limit text default '') returns boolean language sql as 'select true'",
	}},
	firstParentFrees: {{"jobq.waiting_free(bigint[])", "d.child = p.id and d.parent_state is null order by d.parent desc limit 1", "false"}},
	headForgotten:    {{"jobq.lane_next(text, text, text)", "where h.queue = of_queue and h.key = of_key", "where false"}},
	idsRepeat: {{
		"jobq.generation_check()", "",
		"create or replace function jobq.generation_check() returns boolean language sql as 'select false'",
	}},
	leasesByClock: {{
		"jobq.lease_id_next()", "",
		`create or replace function jobq.lease_id_next() returns bigint language sql as $$
			select jobq.lease_day((clock_timestamp() at time zone 'UTC')::date) + nextval('jobq.lease_number_seq') $$`,
	}},
	newParentOnce: {{
		"jobq.dependency_step(timestamptz, integer)",
		"is_sure := not look.is_new or coalesce(look.sure_from <= pg_snapshot_xmin(pg_current_snapshot()), false);", "is_sure := true;",
	}},
	ownUnfenced: {
		{"jobq.run_held(bigint, text)", "and r.lease_id = run_held.lease_id ", ""},
		{"jobq.run_held(bigint, text)", "and l.claimed_at = run_held.claimed_at ", ""},
		{"jobq.run_held(bigint, text)", "and r.slot = split_part(run_token, '.', 3)::integer ", ""},
		{"jobq.run_held(bigint, text)", "select l.owner into owner", "select l.owner, r.lease_id, l.claimed_at into owner, lease_id, claimed_at"},
	},
	rateAheadKept: {{
		"jobq.rate_ready_at(timestamptz, bigint, bigint, integer, timestamptz)",
		"THEN (0)::numeric", "THEN ((burst)::numeric * (step_us)::numeric)",
	}},
	retryPassed: {{"jobq.lane_next(text, text, text)", "of_order <> 'pass'", "false"}},
	sweepForgotten: {{"jobq.history_sweep(integer, integer)", "day := place.day;", `day := place.day;
		if place.began_at < (select a.backend_start from pg_stat_activity a where a.pid = pg_backend_pid()) then
			update jobq.sweep w set next_block = null, next_lease = null where w.day = place.day;
			return;
		end if;
		`}},
	turnsAdvisory: {
		{"jobq.turn_take(text, integer)", "", `create or replace function jobq.turn_take(of_turn text, wait_ms integer) returns boolean
			language plpgsql set lock_timeout = '1s' as $$ begin
				perform set_config('lock_timeout', greatest(wait_ms, 1) || 'ms', true);
				perform pg_advisory_xact_lock(hashtextextended('jobq.' || of_turn, 0));
				return true;
			exception when lock_not_available then return false;
			end $$`},
		{
			"jobq.turn_share(text, integer)", "",
			"create or replace function jobq.turn_share(of_turn text, wait_ms integer) returns boolean language sql as 'select jobq.turn_take(of_turn, wait_ms)'",
		},
	},
}

// apply makes the change.
func (c *functionChange) apply(ctx context.Context, conn *pgx.Conn) error {
	var source string
	if err := conn.QueryRow(ctx, "select pg_get_functiondef($1::text::regprocedure)", c.function).Scan(&source); err != nil {
		return err
	}
	changed := c.to
	if c.from != "" {
		words := strings.Fields(c.from)
		for i, word := range words {
			words[i] = regexp.QuoteMeta(word)
		}
		found := regexp.MustCompile(strings.Join(words, `\s+`)).FindString(source)
		if found == "" {
			return fmt.Errorf("finds no %q in %s", c.from, c.function)
		}
		changed = strings.Replace(source, found, c.to, 1)
	}
	if _, err := conn.Exec(ctx, changed); err != nil {
		return err
	}
	var after string
	if err := conn.QueryRow(ctx, "select pg_get_functiondef($1::text::regprocedure)", c.function).Scan(&after); err != nil {
		return err
	}
	if after == source {
		return errors.New("changes nothing in " + c.function)
	}
	return nil
}

// changeFunctions makes the changes of the run's mutant.
func (l *lab) changeFunctions() error {
	return l.withConn(func(conn *pgx.Conn) error { return changeFunctions(l.ctx, conn, l.mutant) })
}

func changeFunctions(ctx context.Context, conn *pgx.Conn, mutant string) error {
	for _, change := range functionChanges[mutant] {
		if err := change.apply(ctx, conn); err != nil {
			return fmt.Errorf("mutant %s: %w", mutant, err)
		}
	}
	return nil
}
