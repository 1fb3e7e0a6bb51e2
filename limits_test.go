package jobq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
)

// The limits of the SQL interface: the largest and smallest values are taken,
// the next ones are refused by name, by the functions and by a plain INSERT
// alike, and leave nothing.
func TestSQLLimits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	const kind, queue = "kind must be 1 to 128 characters", "queue must be 1 to 128 characters"
	const years = "run_at must be in the years 1 to 9999"
	// An index takes no row of this size.
	const incompressible = "(select string_agg(md5(i::text), '') from generate_series(1, 1000) i)"
	const attempts, priority = "max_attempts must be 1 to 32767", "priority must be -32768 to 32767"
	for _, test := range []struct{ column, value, refusal string }{
		{"kind", "''::text", kind},
		{"kind", "repeat('k', 129)", kind},
		{"kind", "null::text", "kind"},
		{"kind", "repeat('é', 128)", ""},
		{"queue", "''::text", queue},
		{"queue", "repeat('q', 129)", queue},
		{"queue", "repeat('ü', 128)", ""},
		{"max_attempts", "0", attempts},
		{"max_attempts", "-1", attempts},
		{"max_attempts", "32768", attempts},
		{"max_attempts", "1", ""},
		{"max_attempts", "32767", ""},
		{"max_lost", "0", "max_lost must be 1 to 32767"},
		{"max_lost", "32768", "max_lost must be 1 to 32767"},
		{"max_lost", "32767", ""},
		{"max_lost", "null::smallint", ""},
		{"priority", "-32769", priority},
		{"priority", "32768", priority},
		{"priority", "-32768", ""},
		{"priority", "32767", ""},
		{"unique_key", "''::text", "unique_key must be 1 to 255 characters"},
		{"unique_key", "repeat('u', 256)", "unique_key must be 1 to 255 characters"},
		{"unique_key", "repeat('u', 255)", ""},
		{"unique_key", "repeat('ü', 255)", ""},
		{"unique_key", incompressible, "unique_key must be 1 to 255 characters"},
		{"timeout", "interval '0'", "timeout must be positive"},
		{"timeout", "interval '-1 s'", "timeout must be positive"},
		{"timeout", "interval '1 us'", ""},
		{"backoff_base", "interval '0'", "backoff_base must be positive"},
		{"backoff_max", "interval '-1 s'", "backoff_max must be positive"},
		{"backoff_max", "interval '10 years 1 day'", "at most 10 years"},
		{"run_at", "timestamptz '-infinity'", years},
		{"run_at", "timestamptz 'infinity'", years},
		{"run_at", "timestamptz '0001-12-31 00:00:00+00 BC'", years},
		{"run_at", "timestamptz '10000-01-01 00:00:00+00'", years},
		{"run_at", "timestamptz '0001-01-01 00:00:00+00'", ""},
		{"run_at", "timestamptz '9999-12-31 23:59:59.999999+00'", ""},
		{"tags", "array_fill('t'::text, array[33])", "tags must be at most 32"},
		{"tags", "array['a', null]", "tags must be at most 32, without nulls"},
		{"tags", "array_fill('t'::text, array[32])", ""},
		{"tags", "array[" + incompressible + "]", "tags must be at most 32, without nulls, 8 KiB in all"},
		{"tags", "array[repeat('t', 8193)]", "8 KiB in all"},
		{"tags", "array[repeat('t', 8000)]", ""},
		{"metadata", "to_jsonb(repeat('x', 65536))", "metadata must be at most 6"}, // 64 KiB, or 65536
		{"metadata", "to_jsonb(repeat('x', 65500))", ""},
		{"args", "to_jsonb(repeat('x', 1048576))", "args must be at most"},
		{"args", "to_jsonb(repeat('x', 1048000))", ""},
		{"metadata", digits(1), "metadata must be at most 65536 bytes as text"},
		{"metadata", nested(101), "metadata must be nested at most 100 levels deep"},
		{"metadata", nested(100), ""},
		{"args", digits(9), "args must be at most 1048576 bytes as text"},
		{"args", digits(5000), "args must be at most 1048576 bytes as text"},
		{"args", digits(7), ""},
		{"args", nested(101), "args must be nested at most 100 levels deep"},
		{"args", nested(5000), "args must be nested at most 100 levels deep"},
		{"args", nested(100), ""},
	} {
		kindColumn := "'k', "
		if test.column == "kind" {
			kindColumn = ""
		}
		statements := map[string]string{
			"enqueue":      fmt.Sprintf("select jobq.enqueue(%s%s => %s)", kindColumn, test.column, test.value),
			"enqueue_many": fmt.Sprintf("select * from jobq.enqueue_many(jsonb_build_array(jsonb_build_object('kind', 'other'), jsonb_build_object('kind', 'k') || jsonb_build_object('%s', to_jsonb(%s))))", test.column, test.value),
			"insert":       fmt.Sprintf("insert into jobq.pending (kind, %s) values ('k', %s)", test.column, test.value),
		}
		if test.column == "kind" {
			statements["insert"] = fmt.Sprintf("insert into jobq.pending (kind) values (%s)", test.value)
		}
		for name, statement := range statements {
			_, err := client.Pool().Exec(ctx, statement)
			switch {
			case test.refusal == "":
				require.NoError(t, err, statement)
				_, err = client.Pool().Exec(ctx, "select jobq.delete_job(id) from jobq.job")
				require.NoError(t, err)
			case name == "insert" && test.column == "priority":
				require.ErrorContains(t, err, "smallint out of range", "a plain INSERT is refused by the type")
			case name == "insert" && test.value == "32768":
				require.ErrorContains(t, err, "smallint out of range")
			default:
				require.ErrorContains(t, err, test.refusal, statement)
			}
		}
		jobtest.RequireNothingStored(t, client)
	}
}

// digits are numbers of 131,072 digits each, which are stored in 10 bytes.
func digits(count int) string {
	return fmt.Sprintf("(select jsonb_agg('1e131071'::numeric) from generate_series(1, %d))", count)
}

// nested is a number in so many arrays.
func nested(levels int) string {
	return fmt.Sprintf("(repeat('[', %d) || '1' || repeat(']', %[1]d))::jsonb", levels)
}

// Nor does it matter that a value was compressed before it comes in, by a table of its own: 80 bytes can be 9,000 numbers.
func TestCompressedJSONIsRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	_, err := client.Pool().Exec(ctx, "create table odd (value jsonb); insert into odd values ("+digits(200)+"), ("+nested(4000)+"), (to_jsonb(repeat('x', 3000000)))")
	require.NoError(t, err)
	for _, column := range []string{"args", "metadata"} {
		for offset := range 3 {
			from := fmt.Sprintf(" from (select value from odd offset %d limit 1) o", offset)
			for _, statement := range []string{"select jobq.enqueue('k', " + column + " => value)" + from, "insert into jobq.pending (kind, " + column + ") select 'k', value" + from} {
				_, err = client.Pool().Exec(ctx, statement)
				reason, ok := db.Invalid(err)
				require.True(t, ok, "%s: %v", statement, err)
				require.Contains(t, reason, column+" must be ")
			}
		}
	}
	jobtest.RequireNothingStored(t, client)
	_, err = client.Pool().Exec(ctx, "drop table odd")
	require.NoError(t, err)
}

// A batch is all or nothing.
func TestEnqueueManyIsAtomic(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	jobs := []jobq.EnqueueParams{jobtest.Raw("k", `{}`, &jobq.EnqueueOptions{UniqueKey: "u"}), jobtest.Raw("k", `"`+jobtest.LongText(5000)+`"`, nil), jobtest.Raw("", `{}`, nil)}
	_, err := client.EnqueueMany(ctx, jobs)
	require.ErrorIs(t, err, jobq.ErrInvalid)
	jobtest.RequireNothingStored(t, client)
	enqueued, err := client.EnqueueMany(ctx, jobs[:2])
	require.NoError(t, err)
	require.False(t, enqueued[0].Duplicate)
}

// The answers of a batch are in its order, one by one, whatever mixture it
// is; ten thousand of them.
func TestEnqueueManyOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	const count = 10_000
	held := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "held"})
	jobs := make([]jobq.EnqueueParams, count)
	for i := range jobs {
		jobs[i] = jobtest.Raw("greeting", fmt.Sprintf(`{"i": %d}`, i), &jobq.EnqueueOptions{Priority: int16(i % 100), Queue: []string{"", "q"}[i%2]})
		switch i % 1000 {
		case 7:
			jobs[i].UniqueKey = "held"
		case 8:
			jobs[i].UniqueKey = fmt.Sprint(i / 2000)
		case 9:
			jobs[i].Delay = time.Hour
		}
	}
	enqueued, err := client.EnqueueMany(ctx, jobs)
	require.NoError(t, err)
	require.Len(t, enqueued, count)
	type stored struct {
		number   int
		queue    string
		priority int16
		state    string
	}
	found := make(map[int64]stored)
	rows, err := client.Pool().Query(ctx, "select id, (args->>'i')::integer, queue, priority, state::text from jobq.job where args ? 'i'")
	require.NoError(t, err)
	var id int64
	var row stored
	_, err = pgx.ForEachRow(rows, []any{&id, &row.number, &row.queue, &row.priority, &row.state}, func() error {
		found[id] = row
		return nil
	})
	require.NoError(t, err)
	added := 0
	for i, answer := range enqueued {
		if i%1000 == 7 {
			require.Equal(t, jobq.Enqueued{ID: held, Duplicate: true}, answer)
			continue
		}
		if answer.Duplicate {
			require.Equal(t, enqueued[i-1000].ID, answer.ID, "the second of a pair")
			continue
		}
		added++
		want := stored{i, "default", int16(i % 100), "available"}
		if i%2 == 1 {
			want.queue = "q"
		}
		if i%1000 == 9 {
			want.state = "scheduled"
		}
		require.Equal(t, want, found[answer.ID], "job %d", i)
	}
	require.Equal(t, count-10-5, added)
	require.Len(t, found, added)
}
