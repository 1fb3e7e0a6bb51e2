package jobqtest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/jobqtest"
)

func nameOf(database *jobqtest.Database) string { return database.Pool.Config().ConnConfig.Database }

// hashOf is what the names of databases of one template begin with.
func hashOf(database *jobqtest.Database) string {
	name := nameOf(database)
	return name[:strings.LastIndex(name, "_")]
}

// Tests that begin at once make one template, each has a database of its own with the
// tables of jobq and of the application, and nothing but the template stays. Method: each
// New has a session of its own and shares nothing with others, as in other processes.
func TestNew(t *testing.T) {
	t.Parallel()
	var prepared atomic.Int32
	options := &jobqtest.Options{URL: serverURL(t), Schema: "queue-of-tests", Version: t.Name(), Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
		prepared.Add(1)
		_, err := pool.Exec(ctx, "create table public.purchase (id bigint primary key)")
		return err
	}}
	const tests = 6
	outcomes, databases := make([]*outcome, tests), make([]*jobqtest.Database, tests)
	var running sync.WaitGroup
	for i := range tests {
		running.Go(func() {
			outcomes[i] = attempt(func(tb jobqtest.TB) { databases[i] = jobqtest.New(tb, options) })
		})
	}
	running.Wait()
	ctx := context.Background()
	names := make(map[string]bool)
	for i, database := range databases {
		require.Empty(t, outcomes[i].fatal)
		names[nameOf(database)] = true
		_, err := database.Client.Enqueue(ctx, Greeting{"world"}, nil)
		require.NoError(t, err)
		require.Equal(t, 1, count(t, database.Pool, `select count(*) from "queue-of-tests".job`))
		require.Zero(t, count(t, pgtest.Connect(t, database.URL), "select count(*) from public.purchase"))
	}
	require.Len(t, names, tests)
	require.EqualValues(t, 1, prepared.Load())
	for _, o := range outcomes {
		o.end()
		require.Empty(t, o.errors)
	}
	own := hashOf(databases[0]) + `\_%`
	require.Equal(t, 1, count(t, admin(t), "select count(*) from pg_database where datname like $1", own), "the template stays")
	require.Equal(t, 1, count(t, admin(t), "select count(*) from pg_database where datname like $1 and datistemplate and not datallowconn", own))

	other := *options
	other.Version += ", another"
	jobqtest.New(t, &other)
	require.EqualValues(t, 2, prepared.Load(), "another version has another template")
}

// Two processes that are connected to different databases of the server have no lock
// in common. Both make the template then, and both have their database. Method: each
// waits in Prepare until the other is there too.
func TestTemplateMadeTwice(t *testing.T) {
	t.Parallel()
	var both sync.WaitGroup
	both.Add(2)
	options := func(database string) *jobqtest.Options {
		return &jobqtest.Options{URL: pgtest.Server(t).URL(database), Version: t.Name(), Prepare: func(context.Context, *pgxpool.Pool) error {
			both.Done()
			both.Wait()
			return nil
		}}
	}
	elsewhere := pgtest.EmptyURL(t)
	elsewhere = elsewhere[strings.LastIndex(elsewhere, "/")+1:]
	elsewhere, _, _ = strings.Cut(elsewhere, "?")
	var first, second *jobqtest.Database
	var running sync.WaitGroup
	outcomes := make([]*outcome, 2)
	running.Go(func() { outcomes[0] = attempt(func(tb jobqtest.TB) { first = jobqtest.New(tb, options("postgres")) }) })
	running.Go(func() { outcomes[1] = attempt(func(tb jobqtest.TB) { second = jobqtest.New(tb, options(elsewhere)) }) })
	running.Wait()
	for _, o := range outcomes {
		require.Empty(t, o.fatal)
	}
	require.Equal(t, hashOf(first), hashOf(second))
	require.NotEqual(t, nameOf(first), nameOf(second))
	require.NoError(t, first.Client.Check(context.Background()))
	require.NoError(t, second.Client.Check(context.Background()))
	for _, o := range outcomes {
		o.end()
		require.Empty(t, o.errors)
	}
	require.Equal(t, 1, count(t, admin(t), "select count(*) from pg_database where datname like $1", hashOf(first)+`\_%`))
}

// What a killed process has left behind is dropped by a later test: its database, and a
// template that it was making. What a live one uses stays. Method: the session of the
// first test is ended by force, as the server does when a process is gone; on a server of
// its own, where no other test drops anything.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	server := pgtest.OwnServer(t).URL("postgres")
	options := &jobqtest.Options{URL: server}
	var killed *jobqtest.Database
	dead := attempt(func(tb jobqtest.TB) { killed = jobqtest.New(tb, options) })
	require.Empty(t, dead.fatal)
	alive := jobqtest.New(t, options)
	killed.Pool.Close()
	key := nameOf(killed)[strings.LastIndex(nameOf(killed), "_")+1:]
	pool := pgtest.Connect(t, server)
	isThere := func(name string) bool {
		return count(t, pool, "select count(*) from pg_database where datname = $1", name) > 0
	}
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Exec(context.Background(), sql)
		require.NoError(t, err)
	}
	half := hashOf(killed) + "_00000000000000ff" // made by nobody who lives
	exec("create database " + half + " template template0")
	exec("alter database " + half + " with is_template true allow_connections false")
	old := "jobqtest_0123456789ab_template"
	exec("create database " + old + " template template0")
	exec("alter database " + old + " with is_template true allow_connections false")
	exec(fmt.Sprintf("comment on database %s is 'template of jobqtest, last used on %s'", old, "2020-02-29"))
	foreign := "jobqtest_of_somebody_else"
	exec("create database " + foreign + " template template0")

	ended := count(t, pool, `select count(pg_terminate_backend(l.pid, 60000)) from pg_locks l where l.locktype = 'advisory'
		and lpad(to_hex(l.classid::bigint), 8, '0') || lpad(to_hex(l.objid::bigint), 8, '0') = $1`, key)
	require.Equal(t, 1, ended)
	runtime.KeepAlive(dead) // with the session
	require.True(t, isThere(nameOf(killed)))

	jobqtest.New(t, options)
	require.False(t, isThere(nameOf(killed)))
	require.False(t, isThere(half))
	require.False(t, isThere(old))
	require.True(t, isThere(nameOf(alive)))
	require.True(t, isThere(hashOf(alive)+"_template"))
	require.True(t, isThere(foreign))
	require.NoError(t, alive.Client.Check(context.Background()))
}

// urlOf leads to the server of these tests, as another role.
func urlOf(t *testing.T, role string) string {
	t.Helper()
	as := strings.Replace(serverURL(t), "postgres@", role+"@", 1)
	if as == serverURL(t) {
		as = strings.Replace(as, "user=postgres", "user="+role, 1)
	}
	return as
}

// Each role has a template of its own: what another role has made, it may not use.
func TestTwoRoles(t *testing.T) {
	t.Parallel()
	_, err := admin(t).Exec(context.Background(), "create role jobqtest_maker login createdb")
	require.NoError(t, err)
	options := &jobqtest.Options{URL: serverURL(t), Version: t.Name()}
	first := jobqtest.New(t, options)
	options.URL = urlOf(t, "jobqtest_maker")
	second := jobqtest.New(t, options)
	require.NotEqual(t, hashOf(first), hashOf(second))
	_, err = second.Client.Enqueue(context.Background(), Greeting{"world"}, nil)
	require.NoError(t, err)
}

// What cannot work says what to do.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	pool := admin(t)
	_, err := pool.Exec(context.Background(), "create role jobqtest_weak login")
	require.NoError(t, err)
	weak := urlOf(t, "jobqtest_weak")
	for name, each := range map[string]struct {
		options jobqtest.Options
		want    string
	}{
		"no right": {jobqtest.Options{URL: weak, Version: t.Name()}, "the role needs the right CREATEDB"},
		"schema":   {jobqtest.Options{URL: serverURL(t), Schema: "no name"}, "schema"},
		"prepare": {jobqtest.Options{URL: serverURL(t), Version: t.Name(), Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pool.Exec(ctx, "create table public.broken (")
			return err
		}}, "Options.Prepare: "},
		"no version": {jobqtest.Options{URL: serverURL(t), Prepare: func(context.Context, *pgxpool.Pool) error { return nil }}, "Options.Prepare needs an Options.Version"},
	} {
		o := attempt(func(tb jobqtest.TB) { jobqtest.New(tb, &each.options) })
		require.Contains(t, o.fatal, each.want, name)
		require.Empty(t, o.cleanups, name)
	}
}

// A connection that a test has not given back is reported, and its database dropped.
func TestConnectionInUse(t *testing.T) {
	t.Parallel()
	var database *jobqtest.Database
	o := attempt(func(tb jobqtest.TB) { database = jobqtest.New(tb, &jobqtest.Options{URL: serverURL(t)}) })
	require.Empty(t, o.fatal)
	conn, err := database.Pool.Acquire(context.Background())
	require.NoError(t, err)
	o.end()
	conn.Release()
	require.Len(t, o.errors, 1)
	require.Contains(t, o.errors[0], "1 connections of the test's pool are in use after the test")
	require.Zero(t, count(t, admin(t), "select count(*) from pg_database where datname = $1", nameOf(database)))
}
