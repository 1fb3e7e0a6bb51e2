package jobq_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// lazyClient is a client that has not connected.
func lazyClient(t *testing.T) *jobq.Client {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), "postgres://nobody@localhost:1/none")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	return client
}

func routerOf(t *testing.T, names ...string) *jobq.Router {
	t.Helper()
	clients := make(map[string]*jobq.Client)
	for _, name := range names {
		clients[name] = lazyClient(t)
	}
	router, err := jobq.NewRouter(clients)
	require.NoError(t, err)
	return router
}

// Keys are spread evenly. When a database is added, its share of the keys leads to it and no other key moves; when one is
// taken away, only its keys do.
func TestRouterMovesFewKeys(t *testing.T) {
	t.Parallel()
	const keys = 20_000
	three, four := routerOf(t, "eu1", "eu2", "us1"), routerOf(t, "us1", "eu1", "ap1", "eu2")
	counts, moved := make(map[string]int), 0
	for i := range keys {
		key := fmt.Sprintf("tenant %d", i)
		before, after := three.Name(key), four.Name(key)
		counts[after]++
		if before != after {
			require.Equal(t, "ap1", after, key)
			moved++
		}
		require.Same(t, four.Client(after), four.For(key))
	}
	for _, name := range four.Names() {
		require.InEpsilon(t, keys/4, counts[name], 0.1, name)
	}
	require.Equal(t, counts["ap1"], moved)
}

// What a key leads to is the same in each build, and in other languages: python3 -c 'import hashlib; print(max(["eu1", "eu2",
// "us1"], key=lambda n: hashlib.sha256((n + "\0" + "tenant 1").encode()).digest()[:8]))'.
func TestRouterIsStable(t *testing.T) {
	t.Parallel()
	router := routerOf(t, "eu1", "eu2", "us1")
	for key, name := range map[string]string{"tenant 1": "us1", "tenant 2": "eu2", "": "eu1", "päron": "eu2"} {
		require.Equal(t, name, router.Name(key), key)
	}
	require.Nil(t, router.Client("gone"))
}

func TestRouterRefuses(t *testing.T) {
	t.Parallel()
	_, err := jobq.NewRouter(nil)
	require.ErrorContains(t, err, "one database at least")
	_, err = jobq.NewRouter(map[string]*jobq.Client{"eu1": nil})
	require.ErrorContains(t, err, `the client of "eu1" is nil`)
	for _, name := range []string{"", "eu:1", "eu 1", "eu\n"} {
		_, err = jobq.NewRouter(map[string]*jobq.Client{name: lazyClient(t)})
		require.ErrorContains(t, err, "no name of a database", "%q", name)
	}
}

// A database that two names have, and one without the tables, are found before jobs go there.
func TestRouterCheck(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := func(pool *pgxpool.Pool) *jobq.Client {
		c, err := jobq.NewClient(pool, nil)
		require.NoError(t, err)
		return c
	}
	url := pgtest.URL(t)
	one, other := client(pgtest.Connect(t, url)), client(pgtest.Pool(t))
	sound, err := jobq.NewRouter(map[string]*jobq.Client{"eu1": one, "eu2": other})
	require.NoError(t, err)
	require.NoError(t, sound.Check(ctx))
	again := client(pgtest.Connect(t, url))
	odd, err := jobq.NewRouter(map[string]*jobq.Client{"eu1": one, "eu2": other, "eu3": again, "eu4": client(pgtest.Connect(t, pgtest.EmptyURL(t)))})
	require.NoError(t, err)
	err = odd.Check(ctx)
	require.ErrorContains(t, err, `database "eu3": it is the same as "eu1"`)
	require.ErrorContains(t, err, `database "eu4": `)
	require.ErrorIs(t, err, jobq.ErrNotMigrated)
	require.NotContains(t, err.Error(), `"eu2"`)
}
