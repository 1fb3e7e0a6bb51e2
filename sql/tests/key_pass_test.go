package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// pass is a claim that goes on with the pass of another one, and shares its turn as a worker's does.
func pass(exchange db.Exchange, before db.Exchanged) db.Exchange {
	exchange.LanePass, exchange.Sharing = before.LanePass, len(before.Keyed) > 0 && len(before.Keyed)+len(before.Claimed) >= before.Admission.Jobs
	return exchange
}

// passOf are the claims of a worker until nothing is left for it, and what they took.
func (q *queue) passOf(exchange db.Exchange) (taken map[string]int, claims int) {
	q.Helper()
	taken = make(map[string]int)
	var answer db.Exchanged
	for answer.KeysMore = true; answer.KeysMore; claims++ {
		require.Less(q, claims, 5000, "it never ends")
		answer = q.exchange(pass(exchange, answer))
		for key, count := range perKey(answer.Keyed) {
			taken[key] += count
		}
	}
	return taken, claims
}

// Keys whose jobs only others can run keep nobody from the keys behind them, and keep their
// own turns meanwhile.
func TestKeysOfOtherKinds(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', partition_key => 'first ' || i) from generate_series(1, 75) i")
	q.exec("select jobq.enqueue('k', partition_key => 'last') from generate_series(1, 2)")
	q.exec("select jobq.enqueue('other', partition_key => 'other')")
	a, b := keyed("a", 1), keyed("b", 1)
	a.Claim.Kinds = []string{"other"}
	taken, _ := q.passOf(a)
	require.Equal(t, map[string]int{"other": 1}, taken)
	none, claims := q.passOf(a)
	require.Empty(t, none)
	require.Equal(t, 2, claims, "50 keys in each")
	served := make(map[string]int)
	var ofA db.Exchanged
	for range 76 {
		ofA = q.exchange(pass(a, ofA))
		for key, count := range perKey(q.exchange(b).Keyed) {
			served[key] += count
		}
	}
	require.Len(t, served, 76, "each key has its turn")
}

// However many keys there are, a claim that follows finds what this one has not looked at:
// behind many that are empty, in more than a claim looks at, and when a limit was raised.
func TestMoreThanAClaimOfKeys(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i) from generate_series(1, 250) i")
	q.exec("delete from jobq.pending where partition_key not in ('key 250', 'key 9')")
	taken, _ := q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"key 9": 1, "key 250": 1}, taken, "the others are empty")

	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i) from generate_series(1, 250) i")
	taken, _ = q.passOf(keyed("w", 400))
	require.Len(t, taken, 250)

	q.set(`{"key_limit": 1}`)
	q.exec("select jobq.enqueue('k', partition_key => 'full ' || i % 250) from generate_series(1, 500) i")
	taken, _ = q.passOf(keyed("w", 600))
	require.Len(t, taken, 250)
	q.set(`{"key_limit": 2}`)
	taken, _ = q.passOf(keyed("w", 600))
	require.Len(t, taken, 250, "those that were full")
}

// A claim looks at a thousand lanes at most, even if none of them has a job.
func TestAClaimLooksAtAThousandLanes(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	const lanes = 2500
	q.enqueueKeyed("first", 1)
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 1)
	q.exec("insert into jobq.lane (queue, key, turn) select 'default', 'empty ' || i, nextval('jobq.lane_turn_seq') from generate_series(1, $1::integer) i", lanes)
	answer := q.exchange(keyed("w", 10))
	require.Empty(t, answer.Keyed)
	require.True(t, answer.KeysMore)
	require.Equal(t, lanes-1000, q.number("select count(*) from jobq.lane where key like 'empty %'"))
	_, claims := q.passOf(keyed("w", 10))
	require.LessOrEqual(t, claims, 3)
	require.Zero(t, q.number("select count(*) from jobq.lane where key like 'empty %'"))
}

// A claim reads a thousand jobs in ten lanes at most, however many lanes have so many jobs of other kinds.
func TestAClaimWalksInTenLanes(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("insert into jobq.pending (kind, partition_key) select 'other', 'key ' || i % 15 from generate_series(1, 15 * 1100) i")
	q.set(`{"key_limit": 1}`)
	answer := q.exchange(keyed("w", 10))
	require.Empty(t, answer.Keyed)
	require.True(t, answer.KeysMore)
	require.Equal(t, 10, q.number("select count(*) from jobq.lane where looks <> '{}'"))
}

// A claim that has taken a thousand hints, all of one key with a limit, goes on: behind them is the hint of another key.
func TestManyHintsOfOneKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 1}`)
	q.enqueueKeyed("a", 2)
	q.exec("insert into jobq.lane_hint (queue, key) select 'default', 'a' from generate_series(1, 1500)")
	q.enqueueKeyed("b", 1)
	taken, _ := q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"a": 1, "b": 1}, taken)
}

// The jobs of a claim that takes from several lanes at once, and then from one that has jobs of other kinds, have slots of
// one lease, each its own.
func TestSlotsOfAMixedClaim(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.enqueueKeyed("a", 3)
	q.exec("insert into jobq.pending (kind, partition_key) values ('other', 'b')")
	q.enqueueKeyed("b", 2)
	answer := q.exchange(keyed("w", 10))
	require.Equal(t, map[string]int{"a": 3, "b": 2}, perKey(answer.Keyed))
	require.Equal(t, 1, q.number("select count(distinct lease_id) from jobq.run"))
	require.Equal(t, 5, q.number("select count(*) from jobq.run r join jobq.lease l on l.id = r.lease_id where l.job_ids[r.slot] = r.id"))
}

// Jobs of a key that wait for other kinds of workers are walked past a thousand at a time, and
// those behind them are found.
func TestJobsOfOtherKindsWithinAKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	const many = 3500
	q.exec("insert into jobq.pending (kind, partition_key) select 'other', 'a' from generate_series(1, $1::integer)", many)
	q.enqueueKeyed("a", 2)
	answer := q.exchange(keyed("w", 10))
	require.Empty(t, answer.Keyed, "they are behind the first thousand")
	require.True(t, answer.KeysMore)
	others := keyed("w", 3)
	others.Claim.Kinds = []string{"other"}
	head := q.number("select min(id) from jobq.pending")
	for _, job := range q.exchange(others).Keyed {
		require.Less(t, job.ID, int64(head+3), "for these they are at the head")
	}
	require.Equal(t, 3, q.number("select count(*) from jobq.run"))
	taken, claims := q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"a": 2}, taken)
	require.LessOrEqual(t, claims, many/1000+2)
	none, claims := q.passOf(keyed("w", 10))
	require.Empty(t, none)
	require.LessOrEqual(t, claims, many/1000+2)
	// While a walk goes on, one comes to where it has been.
	require.True(t, q.exchange(keyed("w", 10)).KeysMore)
	require.True(t, q.exchange(keyed("w", 10)).KeysMore)
	q.exec("select jobq.enqueue('k', priority => -1, partition_key => 'a')")
	taken, _ = q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"a": 1}, taken)
	require.Zero(t, q.number("select count(*) from jobq.lane where looks <> '{}'"), "nothing is left of the walks")
}

// Without a limit, keys that have a job or two each cost a claim no lane, and it fills all the same.
func TestManySmallKeys(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("insert into jobq.pending (kind, partition_key) select 'k', 'key ' || i / 2 from generate_series(2, 1601) i")
	first := q.exchange(keyed("w", 600))
	require.Len(t, first.Keyed, 600)
	require.True(t, first.KeysMore)
	require.LessOrEqual(t, q.number("select count(*) from jobq.lane where key <> ''"), 100)
	taken, claims := q.passOf(keyed("w", 600))
	require.Len(t, taken, 500)
	require.LessOrEqual(t, claims, 3)
	require.Zero(t, q.number("select count(*) from jobq.lane where key <> ''"))
	require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
	require.Zero(t, q.number("select count(*) from jobq.pending"))
}

// What a claim leaves of the last key, since it is full, is found by the next one.
func TestRestOfTheLastKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for key, count := range map[string]int{"a": 1, "b": 2, "c": 2} {
		q.enqueueKeyed(key, count)
	}
	first := q.exchange(keyed("w", 4))
	require.Len(t, first.Keyed, 4)
	require.True(t, first.KeysMore)
	taken, _ := q.passOf(keyed("w", 4))
	require.Len(t, taken, 1)
	require.Zero(t, q.number("select count(*) from jobq.pending"))
}

// However many hints a key has, it has one lane, and the keys behind it have theirs.
func TestManyHintsOfAKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.enqueueKeyed("a", 350)
	q.enqueueKeyed("b", 250)
	require.Equal(t, map[string]int{"a": 10, "b": 10}, perKey(q.exchange(keyed("w", 20)).Keyed))
	require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
	require.Equal(t, 2, q.number("select count(*) from jobq.lane where turn is not null"))
	taken, _ := q.passOf(keyed("w", 300))
	require.Equal(t, map[string]int{"a": 340, "b": 240}, taken)
	require.Zero(t, q.number("select count(*) from jobq.lane where key <> ''"))
}

// A job that comes while a claim goes on, after that has found its key empty, is not forgotten, although the same
// claim takes its hint away.
func TestJobOfAKeyThatIsEmptyJustThen(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.enqueueKeyed("a", 2)
	require.Len(t, q.exchange(keyed("w", 1)).Keyed, 1)
	require.Equal(t, 1, q.number("select count(*) from jobq.lane where key = 'a' and turn is not null"))
	// Two of each key at first, and then one: so the claim eats hints three times.
	q.exec("insert into jobq.pending (kind, partition_key) select 'k', 'key ' || i % 100 from generate_series(1, 200) i")
	q.exec("insert into jobq.pending (kind, partition_key) select 'k', 'other ' || i from generate_series(1, 650) i")
	q.exec("create sequence eaten")
	q.exec(`create function comes() returns trigger language plpgsql as $$
		begin
			if nextval('public.eaten') = 2 then
				insert into jobq.pending (kind, partition_key) values ('k', 'a');
			end if;
			return null;
		end $$`)
	q.exec("create trigger comes before delete on jobq.lane_hint for each statement execute function comes()")
	taken, _ := q.passOf(keyed("w", 1000))
	require.Len(t, taken, 751)
	require.Equal(t, 2, taken["a"])
	require.GreaterOrEqual(t, q.number("select last_value from public.eaten"), 3)
}

// Jobs that somebody has locked are left alone, and so is the place of their key; when they are free they are
// found, also those of a key that no claim had seen before.
func TestLockedJobsOfKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	for _, key := range []string{"a", "b", "c"} {
		q.enqueueKeyed(key, 2)
	}
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, q.schema.SQL("select from jobq.pending where partition_key = 'a' or id = (select min(id) from jobq.pending where partition_key = 'b') for update"))
	require.NoError(t, err)
	taken, _ := q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"b": 1, "c": 2}, taken)
	require.Equal(t, 2, q.number("select count(*) from jobq.lane where turn is not null"))
	require.NoError(t, tx.Rollback(ctx))
	taken, _ = q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"a": 2, "b": 1}, taken)
}
