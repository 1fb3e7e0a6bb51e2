package jobq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/keyring"
)

// A key that is kept for a period is held after the job's end, until the period ends by the
// database's clock, or the job is deleted; and while the job is unfinished, however long that takes.
func TestUniqueFor(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	options := &jobq.EnqueueOptions{UniqueKey: "u", UniqueFor: time.Hour}
	pass := func() { // the hour passes
		require.Equal(t, 1, w.Count("with u as (update jobq.unique_key set kept_until = kept_until - interval '1 hour' returning 1) select count(*) from u"))
	}
	enqueue := func() jobq.Enqueued {
		got, err := w.Client.Enqueue(ctx, jobtest.Greeting{}, options)
		require.NoError(t, err)
		return got
	}
	first := enqueue()
	held := func(when string) { require.Equal(t, jobq.Enqueued{ID: first.ID, Duplicate: true}, enqueue(), when) }
	held("waiting")
	w.Complete(w.Claim("default", 1)[0])
	held("completed")
	_, err := w.Client.Pool().Exec(ctx, "insert into jobq.pending (kind, unique_key) values ('greeting', 'u')")
	require.ErrorContains(t, err, fmt.Sprintf("unique_key 'u' of kind 'greeting' is held by job %d, which is over, until ", first.ID))

	// The holder itself may run again, and has the key as before.
	require.NoError(t, jobtest.Requeue(w.Client, first.ID))
	held("requeued")
	pass()
	held("unfinished after the hour")
	w.Complete(w.Claim("default", 1)[0])
	require.Zero(t, w.Count("select count(*) from jobq.unique_key"))

	second := enqueue()
	require.False(t, second.Duplicate)
	_, err = w.Client.Cancel(ctx, second.ID)
	require.NoError(t, err)
	require.Equal(t, jobq.Enqueued{ID: second.ID, Duplicate: true}, enqueue(), "cancelled")
	require.ErrorIs(t, jobtest.Requeue(w.Client, first.ID), jobq.ErrDuplicate)
	pass()
	third := enqueue()
	require.False(t, third.Duplicate, "after the hour")
	require.ErrorIs(t, jobtest.Requeue(w.Client, second.ID), jobq.ErrDuplicate, "another has the key since")
	w.Complete(w.Claim("default", 1)[0])
	require.Equal(t, jobq.Enqueued{ID: third.ID, Duplicate: true}, enqueue())
	require.NoError(t, jobtest.Delete(w.Client, third.ID))
	fourth := enqueue()
	require.False(t, fourth.Duplicate, "deleted")
	require.NoError(t, jobtest.Delete(w.Client, fourth.ID))
	require.Zero(t, w.Count("select count(*) from jobq.unique_key"))
}

// Retention removes a job whose key is still kept: the key is held all the same, and the answer names the job.
func TestUniqueForOutlivesItsJob(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	options := &jobq.EnqueueOptions{UniqueKey: "u", UniqueFor: 30 * 24 * time.Hour}
	id := jobtest.Enqueue(t, w.Client, options)
	w.Complete(w.Claim("default", 1)[0])
	w.Count(`select count(jobq.partition_add('run', current_date - 9))`)
	require.Equal(t, 1, w.Count(`with gone as (delete from jobq.run r where r.id = $1 returning 1) select count(*) from gone`, id), "as a day is dropped: no trigger sees it")
	got, err := w.Client.Enqueue(ctx, jobtest.Greeting{}, options)
	require.NoError(t, err)
	require.Equal(t, jobq.Enqueued{ID: id, Duplicate: true}, got)
	_, err = w.Client.Enqueue(ctx, jobtest.Greeting{}, &jobq.EnqueueOptions{UniqueKey: "u", OnConflict: jobq.ConflictFail})
	require.ErrorContains(t, err, fmt.Sprintf("is held by job %d, which is over, until ", id))

	_, err = w.Client.Pool().Exec(ctx, `select jobq.enqueue_many('[{"kind": "greeting", "name": "a", "unique_key": "u"}, {"kind": "greeting", "after": ["a"]}]')`)
	require.ErrorContains(t, err, fmt.Sprintf("jobs[1]: after: no such job: %d, which still has the unique key of one of these jobs (SQLSTATE JQ002)", id))
	_, err = w.Client.Enqueue(ctx, jobtest.Greeting{}, &jobq.EnqueueOptions{After: []int64{id}})
	require.ErrorContains(t, err, fmt.Sprintf("after: no such job: %d", id))
	require.NotContains(t, err.Error(), "unique key")
}

// The period of a key ends while an insert waits for the transaction that has it: the insert adds its job.
func TestUniqueForEndsWhileOneWaits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	tx, err := client.Pool().Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	options := &jobq.EnqueueOptions{UniqueKey: "u", UniqueFor: 200 * time.Millisecond}
	first, err := client.EnqueueTx(ctx, tx, jobtest.Greeting{}, options)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "select jobq.cancel($1)", first.ID)
	require.NoError(t, err)
	var second jobq.Enqueued
	var group errgroup.Group
	group.Go(func() (err error) {
		second, err = client.Enqueue(ctx, jobtest.Greeting{}, options)
		return err
	})
	jobtest.AwaitWaiting(t, client.Pool(), 1)
	// The other one has begun to wait before the period ended, or after: both must add their job.
	require.Eventually(t, func() bool {
		var isOver bool
		require.NoError(t, tx.QueryRow(ctx, "select not exists (select from jobq.unique_key where kept_until >= clock_timestamp())").Scan(&isOver)) // gone if the cancel came late
		return isOver
	}, jobtest.Eventually, jobtest.Tick)
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, group.Wait())
	require.False(t, second.Duplicate)
	require.NotEqual(t, first.ID, second.ID)
}

// A key that is made of args is the same for all languages: whatever the order of members, the
// spaces, and how a number is written. Other fields do not count.
func TestUniqueBy(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	for args, same := range map[string][]string{
		`{"id": 7, "to": "a.b", "at": 1}`:            {`{"at": 2, "to":"a.b","id":7}`, `{"id": 7.0, "to": "a.b"}`, `{"id": 70e-1, "to": "a.b"}`},
		`{"id": "7", "to": "a.b"}`:                   {`{"to": "a.b", "id": "\u0037"}`},
		`{"id": {"x": [1, 2.50, {"y": 1e2}]}}`:       {`{"id": {"x": [1.0, 2.5, {"y": 100}]}, "other": 1}`},
		`{"id": {"x": [2.5, 1, {"y": 100}]}}`:        nil,
		`{"id": null}`:                               {`{"id": null, "at": 2}`},
		`{"to": "only"}`:                             {`{"to": "only", "at": 1}`},
		`{"id": "` + strings.Repeat("é", 300) + `"}`: {`{"id": "` + strings.Repeat("é", 300) + `", "at": 1}`},
		`{"id": "` + strings.Repeat("é", 301) + `"}`: nil,
	} {
		options := &jobq.EnqueueOptions{UniqueBy: []string{"id", "to"}}
		added, err := client.Enqueue(ctx, jobq.RawArgs{Name: "k", JSON: json.RawMessage(args)}, options)
		require.NoError(t, err, args)
		require.False(t, added.Duplicate, args)
		for _, other := range same {
			var id int64
			var duplicate bool
			require.NoError(t, client.Pool().QueryRow(ctx, `select id, duplicate from jobq.enqueue_many(jsonb_build_array(
				jsonb_build_object('kind', 'k', 'args', $1::jsonb, 'uniqueness', '{"by": ["to", "id"]}'::jsonb)))`, other).Scan(&id, &duplicate))
			require.Equal(t, []any{added.ID, true}, []any{id, duplicate}, other)
			require.NoError(t, client.Pool().QueryRow(ctx, `select jobq.enqueue('k', $1, uniqueness => '{"by": ["id", "to"]}')`, other).Scan(&id))
			require.Equal(t, added.ID, id, other)
		}
	}
	// All of args.
	all := &jobq.EnqueueOptions{UniqueBy: []string{jobq.AllArgs}}
	for args, duplicate := range map[string]bool{`{"id": 7, "at": 1}`: false, `{"id": 7, "at": 2}`: false} {
		got, err := client.Enqueue(ctx, jobq.RawArgs{Name: "all", JSON: json.RawMessage(args)}, all)
		require.NoError(t, err)
		require.Equal(t, duplicate, got.Duplicate, args)
	}
	got, err := client.Enqueue(ctx, jobq.RawArgs{Name: "all", JSON: json.RawMessage(`{"at": 2.0, "id": 7}`)}, all)
	require.NoError(t, err)
	require.True(t, got.Duplicate)
}

// Windows follow one another by the clock of the database, and the key of each is kept until its end.
func TestUniqueWindow(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	for _, c := range []struct{ at, window, key, until string }{
		{"2026-05-01 12:34:56+00", "1 hour", "x 2026-05-01T12:00:00Z+3600s", "2026-05-01 13:00:00+00"},
		{"2026-05-01 13:00:00+00", "1 hour", "x 2026-05-01T13:00:00Z+3600s", "2026-05-01 14:00:00+00"},
		{"2026-05-01 01:30:00+03", "1 day", "x 2026-04-30T00:00:00Z+86400s", "2026-05-01 00:00:00+00"},
		{"2026-05-03 23:59:59+00", "7 days", "x 2026-04-27T00:00:00Z+604800s", "2026-05-04 00:00:00+00"}, // from a Monday to a Monday
		{"2026-05-01 12:34:56+00", "90 s", "x 2026-05-01T12:34:30Z+90s", "2026-05-01 12:36:00+00"},
	} {
		var key string
		var isUntil bool
		require.NoError(t, w.Client.Pool().QueryRow(ctx, `select r.key, r.until = $4::timestamptz
			from jobq.unique_rule(jsonb_build_object('window', $1::text), 'x', '{}', $2::timestamptz) r where $3::text is not null`,
			c.window, c.at, c.key, c.until).Scan(&key, &isUntil))
		require.Equal(t, c.key, key)
		require.True(t, isUntil, c.key)
	}

	options := &jobq.EnqueueOptions{UniqueKey: "u", UniqueWindow: 365 * 24 * time.Hour}
	id := jobtest.Enqueue(t, w.Client, options)
	w.Complete(w.Claim("default", 1)[0])
	got, err := w.Client.Enqueue(ctx, jobtest.Greeting{}, options)
	require.NoError(t, err)
	require.Equal(t, jobq.Enqueued{ID: id, Duplicate: true}, got, "once in a window, although the job has ended")
	// A job of an earlier window has another key, and does not matter.
	_, err = w.Client.Pool().Exec(ctx, "update jobq.unique_key set key = 'u 2001-01-01T00:00:00Z+31536000s'")
	require.NoError(t, err)
	got, err = w.Client.Enqueue(ctx, jobtest.Greeting{}, options)
	require.NoError(t, err)
	require.False(t, got.Duplicate)
}

// What cannot be meant is refused with a line that says why, from SQL and from Go, and nothing is added.
func TestUniquenessIsChecked(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	for uniqueness, want := range map[string]string{
		`[]`:                             "uniqueness must be a JSON object",
		`{"kay": "x"}`:                   `unknown member "kay"; there are by, window, for, on_conflict`,
		`{}`:                             "uniqueness needs unique_key, or by",
		`{"for": "1 h"}`:                 "uniqueness needs unique_key, or by",
		`{"by": "id"}`:                   "by must be 1 to 32 names of fields of args",
		`{"by": []}`:                     "by must be 1 to 32 names of fields of args",
		`{"by": [1]}`:                    "by must be 1 to 32 names of fields of args",
		`{"by": ["*", "id"]}`:            "by must be 1 to 32 names of fields of args",
		`{"by": ["idd"]}`:                `args have none of the fields ["idd"]`,
		`{"by": ["id"], "for": "soon"}`:  "for must be an interval",
		`{"by": ["id"], "for": 60}`:      "for must be an interval",
		`{"by": ["id"], "for": "-1 s"}`:  "for must be an interval",
		`{"by": ["id"], "for": "11 y"}`:  "for must be an interval",
		`{"by": ["id"], "window": "0"}`:  "window must be an interval",
		`{"by":["id"],"window":"1 mon"}`: "window must be in days",
		`{"by":["id"],"window":"1 ms"}`:  "window must be at least a second",
		`{"by": ["id"], "window": "1 h", "for": "1 h"}`:   "give window or for, and not both",
		`{"by": ["id"], "on_conflict": "raise"}`:          "on_conflict must be skip, replace or fail, not \"raise\"",
		`{"by": ["id"], "on_conflict": "replace", "x":1}`: `unknown member "x"`,
	} {
		_, err := client.Pool().Exec(ctx, `select jobq.enqueue('k', '{"id": 1}', uniqueness => $1)`, uniqueness)
		jobtest.RequireRefusal(t, err, "uniqueness", want, uniqueness)
		_, err = client.Pool().Exec(ctx, `select jobq.enqueue_many(jsonb_build_array('{"kind": "k"}'::jsonb, jsonb_build_object('kind', 'k', 'args', '{"id": 1}'::jsonb, 'uniqueness', $1::jsonb)))`, uniqueness)
		jobtest.RequireRefusal(t, err, "jobs[1]: uniqueness", want, uniqueness)
	}
	_, err := client.Pool().Exec(ctx, `select jobq.enqueue('k', '{"id": 1}', unique_key => 'x', uniqueness => '{"by": ["id"]}')`)
	jobtest.RequireRefusal(t, err, "uniqueness", "give unique_key or by, and not both", "both")
	_, err = client.Pool().Exec(ctx, `select jobq.enqueue('k', '{"id": 1}', after => array[jobq.enqueue('parent')], uniqueness => '{"by": ["id"], "on_conflict": "replace"}')`)
	jobtest.RequireRefusal(t, err, "uniqueness", "on_conflict replace is not for a job that waits for others (after)", "after")
	_, err = client.Pool().Exec(ctx, `select jobq.enqueue('k', '{"$jobq": "enc", "id": 1}', uniqueness => '{"by": ["id"]}')`)
	jobtest.RequireRefusal(t, err, "uniqueness", "by cannot look into encrypted args", "encrypted")
	_, err = client.Pool().Exec(ctx, `select jobq.enqueue('k', '{"id": 1}', uniqueness => '{"by": ["id"')`)
	jobtest.RequireRefusal(t, err, "uniqueness", "must be JSON", "no JSON")
	for want, options := range map[string]jobq.EnqueueOptions{
		"unique_by must be valid UTF-8":   {UniqueBy: []string{"\xff"}},
		"on_conflict must be valid UTF-8": {UniqueKey: "x", OnConflict: "\x00"},
		"for must be an interval":         {UniqueKey: "x", UniqueFor: -time.Second},
		"needs unique_key, or by":         {OnConflict: jobq.ConflictFail},
		"window must be at least":         {UniqueKey: "x", UniqueWindow: time.Millisecond},
	} {
		_, err := client.Enqueue(ctx, jobtest.Greeting{}, &options)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, want)
		_, err = client.EnqueueMany(ctx, []jobq.EnqueueParams{{Args: jobtest.Greeting{}, EnqueueOptions: options}})
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	jobtest.RequireNothingStored(t, client)
}

// A client whose codec encodes args refuses to make a key of them: the database would see other ones each time.
func TestUniqueByWithCodec(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	keys, err := keyring.New(keyring.Key{Name: "a", Secret: []byte(strings.Repeat("a", 32))})
	require.NoError(t, err)
	client, err := jobq.NewClient(pgtest.Pool(t), &jobq.Config{Codec: keys})
	require.NoError(t, err)
	options := jobq.EnqueueOptions{UniqueBy: []string{"name"}}
	_, err = client.Enqueue(ctx, jobtest.Greeting{Name: "x"}, &options)
	require.EqualError(t, err, "enqueue: invalid value: UniqueBy is not for a client with a codec, whose args the database cannot read: give a UniqueKey")
	_, err = client.EnqueueMany(ctx, []jobq.EnqueueParams{{Args: jobtest.Greeting{Name: "x"}, EnqueueOptions: options}})
	require.ErrorContains(t, err, "jobs[0]: UniqueBy is not for a client with a codec")
	var graph jobq.Graph
	graph.Add("one", jobtest.Greeting{}, &options)
	_, err = client.EnqueueGraph(ctx, &graph)
	require.ErrorContains(t, err, `job "one": UniqueBy is not for a client with a codec`)
	jobtest.RequireNothingStored(t, client)

	// With a key that is given, what replaces is encrypted as what is replaced.
	given := &jobq.EnqueueOptions{UniqueKey: "u", OnConflict: jobq.ConflictReplace}
	id := jobtest.Enqueue(t, client, given)
	got, err := client.Enqueue(ctx, jobtest.Greeting{Name: "new"}, given)
	require.NoError(t, err)
	require.Equal(t, jobq.Enqueued{ID: id, Duplicate: true, Replaced: true}, got)
	job, err := client.Get(ctx, id)
	require.NoError(t, err)
	require.JSONEq(t, `{"name": "new"}`, string(job.Args))
}

// sync is a kind with a unique key of its own.
type syncArgs struct {
	ID int `json:"id"`
}

func (syncArgs) Kind() string { return "sync" }

func (syncArgs) EnqueueDefaults() jobq.EnqueueOptions {
	return jobq.EnqueueOptions{UniqueBy: []string{"id"}, UniqueWindow: 365 * 24 * time.Hour, OnConflict: jobq.ConflictFail}
}

// A kind may say how its jobs are unique, and a caller may say otherwise: a key in place of the fields, and a
// period in place of the window.
func TestUniqueDefaults(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	first, err := client.Enqueue(ctx, syncArgs{7}, nil)
	require.NoError(t, err)
	_, err = client.Enqueue(ctx, syncArgs{7}, nil)
	require.ErrorIs(t, err, jobq.ErrDuplicate)
	other, err := client.Enqueue(ctx, syncArgs{7}, &jobq.EnqueueOptions{UniqueKey: "own", UniqueFor: time.Hour, OnConflict: jobq.ConflictSkip})
	require.NoError(t, err)
	require.False(t, other.Duplicate)
	for id, want := range map[int64]string{first.ID: `{"id": 7} `, other.ID: "own"} {
		job, err := client.Get(ctx, id)
		require.NoError(t, err)
		require.Contains(t, job.UniqueKey, want)
	}
}
