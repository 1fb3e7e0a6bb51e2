package tests

import (
	"context"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// large is an array in SQL that is 200 kB long as stored, and 2 GB as text.
const large = "('[1e131071' || repeat(',1e131071', 15000) || ']')::jsonb"

// plantOdd adds a job that no claim can read, past the triggers.
func (q *queue) plantOdd() (id int64) {
	q.Helper()
	ctx := context.Background()
	require.NoError(q, pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local session_replication_role = replica"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "insert into jobq.pending (kind, metadata) values ('odd', "+large+") returning id").Scan(&id)
	}))
	return id
}

func (q *queue) setApart() ([]int64, error) {
	page, err := q.queries.UnreadableSetApart(context.Background(), db.UnreadableSetApartParams{Queue: "default", AfterPriority: math.MinInt32, JobCount: 100})
	return page.Ids, err
}

// The look for a job that no claim can read adds up how long its numbers are: the server cannot make the text at all.
func TestUnreadableIsFoundWithoutItsText(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for name, value := range map[string]string{
		"an array":          large,
		"an object":         `jsonb_build_object('a', ` + large + `)`,
		"negative numbers":  "replace('[1e131071' || repeat(',1e131071', 15000) || ']', '1e', '-1e')::jsonb",
		"nested in objects": `(select jsonb_object_agg(i, jsonb_build_object('n', '-1e131071'::jsonb)) from generate_series(1, 10000) i)`,
	} {
		var problem *string
		require.NoError(t, q.pool.QueryRow(context.Background(), "select jobq.json_problem('args', "+value+", 67108864)").Scan(&problem), name)
		require.NotNil(t, problem, name)
		require.Regexp(t, "with all numbers written out, not [0-9]+ or more", *problem, name)
	}
}

// A claim locks the job that it cannot read until the server has given up, and another one comes at once. The look waits for
// the lock, and looks again then.
func TestUnreadableIsSetApartAfterItsLock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile string
		want      int
	}{
		"a claim that failed": {"select 1", 2},
		"an edit":             {"update jobq.pending set metadata = '{}' where id = (select min(id) from jobq.pending)", 1},
		"a claim of the rest": {"delete from jobq.pending where id = (select min(id) from jobq.pending)", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			odd := []int64{q.plantOdd(), q.plantOdd()}
			ctx := context.Background()
			holder, err := q.pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = holder.Rollback(ctx) }()
			_, err = holder.Exec(ctx, "select from jobq.pending where id = $1 for update", odd[0])
			require.NoError(t, err)
			type answer struct {
				ids []int64
				err error
			}
			answers := make(chan answer, 1)
			go func() {
				ids, err := q.setApart()
				answers <- answer{ids, err}
			}()
			q.awaitLock()
			_, err = holder.Exec(ctx, test.meanwhile)
			require.NoError(t, err)
			require.NoError(t, holder.Commit(ctx))
			require.Equal(t, answer{ids: odd[2-test.want:]}, <-answers)
		})
	}
}

// The look waits for one job at most, and while it has locked nothing itself.
func TestUnreadableLeavesOutWhatIsLocked(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	odd := []int64{q.plantOdd(), q.plantOdd(), q.plantOdd()}
	release := q.locked(func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "select from jobq.pending where id = $1 for update", odd[1])
		return err
	})
	ids, err := q.setApart()
	require.NoError(t, err)
	require.Equal(t, []int64{odd[0], odd[2]}, ids)
	release()
	ids, err = q.setApart()
	require.NoError(t, err)
	require.Equal(t, odd[1:2], ids)
	require.Equal(t, 3, q.number("select count(*) from jobq.job where state = 'failed' and attempts = 0 and last_error like 'the job cannot be read: %'"))
}
