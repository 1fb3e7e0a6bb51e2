package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Names of schemas that are taken, and those that are refused with a reason.
func TestValidateSchema(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"jobq", "My-Schema", "_", "_x", "a1", "UPPER", "select", "public", "p", "pg", "PG_x", "jobq-2", strings.Repeat("x", 63),
	} {
		require.NoError(t, db.ValidateSchema(name), name)
	}
	for name, want := range map[string]string{
		"":                      "use letters",
		"1a":                    "use letters",
		"-a":                    "use letters",
		"a b":                   "use letters",
		`a"b`:                   "use letters",
		"a'b":                   "use letters",
		"a.b":                   "use letters",
		"a;b":                   "use letters",
		"a$b":                   "use letters",
		"ä":                     "use letters",
		"a\x00":                 "use letters",
		"a\n":                   "use letters",
		"\xff":                  "use letters",
		"jobq\u202e":            "use letters",
		"pg_x":                  "belong to PostgreSQL",
		strings.Repeat("x", 64): "has 64 bytes, the limit is 63",
	} {
		require.ErrorContains(t, db.ValidateSchema(name), want, "%q", name)
		_, err := db.NewSchema(name)
		require.Equal(t, name != "", err != nil, "%q", name)
	}
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	require.Equal(t, "jobq", schema.Name(), "no name means the default")
}

// Two schemas of one database, one with an awkward name, know nothing of each
// other: jobs, keys, channels, advisory locks.
func TestTwoSchemas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.EmptyURL(t)
	pool := pgtest.Connect(t, url)
	var queues []*queue
	channels := make(map[string]bool)
	locks := make(map[int32]bool)
	for _, name := range []string{"jobq", "My-Schema"} {
		require.NoError(t, pgtest.Migrate(ctx, url, name))
		schema, err := db.NewSchema(name)
		require.NoError(t, err)
		queues = append(queues, &queue{T: t, schema: schema, queries: schema.Queries(pool), pool: pool})
		channels[db.Channel(name, db.TopicWork)] = true
		class, _ := schema.AdvisoryKey(db.LockJanitor)
		locks[class] = true
	}
	require.Len(t, channels, 2)
	require.Len(t, locks, 2)
	first, second := queues[0], queues[1]
	second.exec(second.schema.SQL("select jobq.enqueue('k', unique_key => 'u')"))
	first.exec("select jobq.enqueue('k', unique_key => 'u') from generate_series(1, 2)")
	require.Equal(t, 1, first.number("select count(*) from jobq.pending"))
	job := second.claim("a", 5)
	require.Len(t, job, 1)
	require.True(t, writes["fail"](second, at(job[0]), "a"))
	require.Equal(t, 1, first.number("select count(*) from jobq.job where attempts = 0 and state = 'available'"))
	require.Equal(t, 1, first.number(second.schema.SQL("select count(*) from jobq.job where attempts = 1 and state = 'scheduled'")))
}

// Every statement of ours is text in which `jobq.` names the schema and
// nothing else: rendered for another schema, no trace of the default is left.
func TestNothingEscapesTheRendering(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.EmptyURL(t)
	require.NoError(t, pgtest.Migrate(ctx, url, "other"))
	pool := pgtest.Connect(t, url)
	rows, err := pool.Query(ctx, `
		select p.proname::text, p.prosrc::text from pg_proc p where p.pronamespace = 'other'::regnamespace
		union all select c.conname::text, pg_get_constraintdef(c.oid) from pg_constraint c where c.connamespace = 'other'::regnamespace
		union all select v.viewname::text, v.definition from pg_views v where v.schemaname = 'other'`)
	require.NoError(t, err)
	var name, source string
	count := 0
	_, err = pgx.ForEachRow(rows, []any{&name, &source}, func() error {
		count++
		require.NotContains(t, source, "jobq.", name)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, count, 20)
	var elsewhere int
	require.NoError(t, pool.QueryRow(ctx, `select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname not in ('other', 'information_schema') and n.nspname not like 'pg\_%'`).Scan(&elsewhere))
	require.Zero(t, elsewhere, "nothing is made outside the schema")
}

// Channels are called the same in Go and in SQL, in any schema.
func TestChannel(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, name := range []string{"jobq", "Other-Schema", "s_" + fmt.Sprintf("%060d", 7)} {
		pool := pgtest.Connect(t, pgtest.EmptyURL(t))
		require.NoError(t, pgtest.Migrate(ctx, pool.Config().ConnString(), name))
		for _, topic := range []string{db.TopicWork, db.TopicDue, db.TopicCancel} {
			var channel string
			require.NoError(t, pool.QueryRow(ctx, db.Render("select jobq.channel($1)", name), topic).Scan(&channel))
			require.Equal(t, channel, db.Channel(name, topic))
			require.Less(t, len(channel), 64)
		}
	}
}

// FuzzRender puts any name into a statement in such a way that PostgreSQL
// reads exactly that name back: valid names by Render, all by their quotes.
func FuzzRender(f *testing.F) {
	for _, name := range []string{"jobq", "My-Schema", `a"b`, `""`, `".pending; drop table x; --`, "jobq.", "a\x00b"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		rendered := db.Render("select jobq.f('jobq.')", name)
		want := strings.ReplaceAll(strings.ReplaceAll(name, "\x00", ""), `"`, `""`)
		require.Equal(t, fmt.Sprintf(`select "%s".f('"%s".')`, want, want), rendered)
		inner := strings.TrimSuffix(strings.TrimPrefix(db.Render("jobq.", name), `"`), `".`)
		require.Zero(t, strings.Count(strings.ReplaceAll(inner, `""`, ""), `"`), "a lone quote would end the name")
		if db.ValidateSchema(name) == nil {
			require.Equal(t, `"`+name+`".`, db.Render("jobq.", name))
			require.Regexp(t, `^jobq_work_[0-9a-f]{16}$`, db.Channel(name, db.TopicWork))
		}
	})
}
