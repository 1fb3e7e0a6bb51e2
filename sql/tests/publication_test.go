package tests

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/postgres"
)

// A publication for all tables, as change data capture and upgrades by logical replication make it, refuses no update and
// no delete of any table of the schema, nor of a day of the history that is made later: each has a replica identity.
// The server refuses at the start of the statement, so one that changes no row is enough.
func TestPublicationForAllTables(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(ctx, "create publication everything for all tables")
	require.NoError(t, err)
	for _, parent := range []string{"run", "past_lease", "attempt"} {
		_, err := pool.Exec(ctx, "select jobq.partition_add($1, $2)", parent, time.Now().AddDate(0, 0, 20))
		require.NoError(t, err)
	}
	rows, err := pool.Query(ctx, "select c.oid::regclass::text from pg_class c where c.relnamespace = 'jobq'::regnamespace and c.relkind in ('r', 'p') order by 1")
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(tables), 30)
	for _, table := range tables {
		var column string
		err := pool.QueryRow(ctx, `select quote_ident(a.attname) from pg_attribute a
			where a.attrelid = $1::text::regclass and a.attnum > 0 and a.attidentity = '' and a.attgenerated = '' limit 1`, table).Scan(&column)
		require.NoError(t, err, table)
		for _, sql := range []string{"update %s set %[2]s = %[2]s where %[2]s is null", "delete from %s where %s is null"} {
			_, err := pool.Exec(ctx, fmt.Sprintf(sql, table, column))
			require.NoError(t, err, table)
		}
	}
}

// A subscriber with jobq's tables gets all that happens to the jobs: claims, ends of each sort, what comes back and what
// is reaped, also in a day of the history that was made after the subscription.
func TestLogicalReplication(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, err := postgres.Start(ctx, postgres.Config{InMemory: true, Settings: map[string]string{"wal_level": "logical"}})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := server.Stop(ctx); !errors.Is(err, postgres.ErrForced) {
			require.NoError(t, err)
		}
	})
	admin := pgtest.Connect(t, server.URL("postgres"))
	var sides []*queue
	for _, name := range []string{"publisher", "subscriber"} {
		_, err := admin.Exec(ctx, "create database "+name)
		require.NoError(t, err)
		require.NoError(t, pgtest.Migrate(ctx, server.URL(name), "jobq"))
		pool := pgtest.Connect(t, server.URL(name))
		schema := db.SchemaOf("", db.SessionsOwn)
		sides = append(sides, &queue{T: t, schema: schema, queries: schema.Queries(pool), pool: pool})
	}
	publisher, subscriber := sides[0], sides[1]
	publisher.exec("create publication everything for all tables with (publish_via_partition_root = true)")
	publisher.exec("select pg_create_logical_replication_slot('copy', 'pgoutput')")
	subscriber.exec("truncate jobq.setting") // the first copy brings it
	// It ends with the server: to drop it can wait for ever, for a copy of a table that waits for the transaction that drops.
	subscriber.exec(fmt.Sprintf(`create subscription copy connection '%s' publication everything with (create_slot = false, slot_name = 'copy')`, server.URL("publisher")))
	publisher.exec("select jobq.partition_add(p, (now() at time zone 'UTC')::date) from unnest(array['run', 'past_lease', 'attempt']) p")
	publisher.exec("select jobq.enqueue('k', '{}', max_attempts => 2) from generate_series(1, 20)")
	for i, job := range publisher.claim("a", 20) {
		switch i % 4 {
		case 0:
			require.True(t, writes["complete"](publisher, at(job), "a"))
		case 1:
			require.True(t, writes["complete with result"](publisher, at(job), "a"))
		case 2:
			require.True(t, ending("failed")(publisher, at(job), "a"))
		}
	}
	publisher.reap()
	publisher.exec("select jobq.cancel(id) from (select id from jobq.pending limit 2) p")
	const state = `select coalesce(string_agg(t::text, '; ' order by t::text), '') from (
		select id, lease_token, attempts, null::jobq.job_state as state, null::jsonb from jobq.pending
		union all select id, lease_id, attempts, state, result from jobq.run
		union all select job_id, lease_token, number, null, null from jobq.attempt
		union all select id, cardinality(job_ids), cardinality(ended_slots), null, null from jobq.lease
		union all select id, cardinality(ended), 0, null, null from jobq.past_lease) t`
	read := func(q *queue) (text string) {
		require.NoError(t, q.pool.QueryRow(ctx, state).Scan(&text))
		return text
	}
	require.Eventually(t, func() bool { return read(publisher) == read(subscriber) }, time.Minute, 20*time.Millisecond)
	require.NotEmpty(t, read(publisher))
}
