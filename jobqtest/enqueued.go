package jobqtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// recordedMax is the most jobs that a Recorder looks at.
	recordedMax = 10_000
	// listedMax is how many of them a failure lists, and shownMax how much of their args.
	listedMax, shownMax = 20, 200
)

// Recorder tells what was enqueued since it was made: see Record and RecordTx.
type Recorder struct {
	tb      TB
	querier querier
	schema  *db.Schema
	codec   jobq.Codec // of the client; nil for none
	after   int64      // the last id given out when it was made
	own     bool       // only what its transaction has enqueued
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Job is a job that was enqueued, with its args.
//
// Of the embedded job are set: ID, State, Queue, Kind, Priority, Args, MaxAttempts, MaxLost,
// RunAt, CreatedAt, Timeout, UniqueKey, PartitionKey, Tags and Metadata.
type Job[T jobq.Args] struct {
	jobq.Job
	Args T
}

// Record records the jobs of all transactions that commit from now on. If no other test
// uses the database, these are the jobs that the test itself enqueues. Jobs that have run
// since count as well.
func Record(tb TB, client *jobq.Client) *Recorder {
	tb.Helper()
	return record(tb, client, client.Pool(), false)
}

// RecordTx records what this transaction enqueues from now on, before it commits.
// What others enqueue meanwhile does not count, so the database may be one that
// other tests use, and the transaction may be rolled back afterwards.
func RecordTx(tb TB, client *jobq.Client, tx jobq.DBTX) *Recorder {
	tb.Helper()
	if err := db.RequireTx(tx); err != nil {
		tb.Fatalf("jobqtest: record: %v", err)
	}
	return record(tb, client, tx, true)
}

func record(tb TB, client *jobq.Client, querier querier, own bool) *Recorder {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r := &Recorder{tb: tb, querier: querier, schema: db.SchemaOf(client.Schema(), client.Sessions()), codec: client.Codec(), own: own}
	err := querier.QueryRow(ctx, r.schema.SQL(`select coalesce(pg_sequence_last_value('jobq.job_id_seq'), 0)`)).Scan(&r.after)
	if err != nil {
		tb.Fatalf("jobqtest: last job id: %v", err)
	}
	return r
}

// recordedSQL has the jobs with ids above $1, at most $2 of them. If $3 is set, they are
// only those that the transaction itself, or one of its savepoints, has inserted: rows of a
// transaction in progress, since it sees no such rows of other transactions.
const recordedSQL = `
select j.id, j.state::text, j.queue, j.kind, j.priority, j.args, j.max_attempts, j.run_at, j.created_at,
    coalesce(ceil(extract(epoch from j.timeout) * 1000), 0)::bigint, coalesce(j.unique_key, ''), coalesce(j.partition_key, ''), j.tags, j.metadata,
    coalesce(j.max_lost, 0)
  from jobq.job j
  where j.id > $1 and (not $3 or exists (
    select from jobq.pending p,
        lateral (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next, p.xmin::text::bigint as low) x
      where p.id = j.id and pg_xact_status((` + fullNumberSQL + `)::text::xid8) = 'in progress'))
  order by j.id
  limit $2`

// fullNumberSQL is the full number of the transaction that has inserted a row. The row has
// only its lower 32 bits (xmin, here x.low). Of all numbers with these bits, it is the one
// nearest to x.next.
//
//	next           low          number
//	4,294,967,300  100          4,294,967,396
//	4,294,967,300  4294967290   4,294,967,290
const fullNumberSQL = `x.next + (x.low - x.next % 4294967296 + 6442450944) % 4294967296 - 2147483648`

// Jobs returns all jobs that were enqueued, of any kind, in the order of their ids. It sets the
// fields that Job names. If the client has a Codec, the args are decoded.
func (r *Recorder) Jobs() []jobq.Job {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	rows, err := r.querier.Query(ctx, r.schema.SQL(recordedSQL), r.after, recordedMax+1, r.own)
	if err != nil {
		r.tb.Fatalf("jobqtest: jobs enqueued: %v", err)
	}
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (job jobq.Job, err error) {
		var timeoutMs int64
		err = row.Scan(&job.ID, &job.State, &job.Queue, &job.Kind, &job.Priority, &job.Args, &job.MaxAttempts, &job.RunAt,
			&job.CreatedAt, &timeoutMs, &job.UniqueKey, &job.PartitionKey, &job.Tags, &job.Metadata, &job.MaxLost)
		job.Timeout = time.Duration(timeoutMs) * time.Millisecond
		return job, err
	})
	if err != nil {
		r.tb.Fatalf("jobqtest: jobs enqueued: %v", err)
	}
	if len(jobs) > recordedMax {
		r.tb.Fatalf("jobqtest: more than %d jobs were enqueued, which is the most that a Recorder looks at", recordedMax)
	}
	for i := range jobs {
		if r.codec == nil {
			break
		}
		if err := jobs[i].Decode(ctx, r.codec); err != nil {
			r.tb.Fatalf("jobqtest: job %d: %v", jobs[i].ID, err)
		}
	}
	return jobs
}

// Equal matches args that are equal to those wanted, as JSON.
func Equal[T jobq.Args](want T) func(T) bool {
	wanted, err := json.Marshal(want)
	return func(args T) bool {
		found, foundErr := json.Marshal(args)
		return err == nil && foundErr == nil && bytes.Equal(wanted, found)
	}
}

// Enqueued returns the jobs of T's kind whose args match, in the order of their ids. Nil matches all.
func Enqueued[T jobq.Args](r *Recorder, match func(args T) bool) []Job[T] {
	r.tb.Helper()
	found, _ := find(r, match)
	return found
}

// RequireOne returns the one job of T's kind whose args match. Nil matches all. Unless
// there is exactly one, it fails the test and lists what was enqueued.
func RequireOne[T jobq.Args](r *Recorder, match func(args T) bool) Job[T] {
	r.tb.Helper()
	found, all := find(r, match)
	if len(found) != 1 {
		r.tb.Fatalf("jobqtest: %d jobs of kind %s%s were enqueued, want 1\n%s", len(found), kindOf[T](r), thatMatch(match), list(all))
	}
	return found[0]
}

// RequireNone fails the test if a job of T's kind was enqueued whose args match, and
// lists what was enqueued. Nil matches all.
func RequireNone[T jobq.Args](r *Recorder, match func(args T) bool) {
	r.tb.Helper()
	if found, all := find(r, match); len(found) > 0 {
		r.tb.Fatalf("jobqtest: %d jobs of kind %s%s were enqueued, want none\n%s", len(found), kindOf[T](r), thatMatch(match), list(all))
	}
}

// find returns the jobs that match, and all.
func find[T jobq.Args](r *Recorder, match func(args T) bool) (found []Job[T], all []jobq.Job) {
	r.tb.Helper()
	kind := kindOf[T](r)
	all = r.Jobs()
	for _, job := range all {
		if job.Kind != kind {
			continue
		}
		each := Job[T]{Job: job}
		if key, encrypted := jobq.EncryptedWith(job.Args); encrypted {
			r.tb.Fatalf("jobqtest: args of job %d are encrypted with key %q: give Record a client with a Codec", job.ID, key)
		}
		if err := json.Unmarshal(job.Args, &each.Args); err != nil {
			r.tb.Fatalf("jobqtest: args of job %d do not decode into %T: %v\n%s", job.ID, each.Args, err, list(all))
		}
		if match == nil || match(each.Args) {
			found = append(found, each)
		}
	}
	return found, all
}

func kindOf[T jobq.Args](r *Recorder) string {
	r.tb.Helper()
	var zero T
	kind := zero.Kind()
	if kind == "" {
		r.tb.Fatalf("jobqtest: %T has no kind of its own: use Recorder.Jobs", zero)
	}
	return kind
}

func thatMatch[T jobq.Args](match func(args T) bool) string {
	if match == nil {
		return ""
	}
	return " that match"
}

// list shows jobs for a failure.
func list(jobs []jobq.Job) string {
	if len(jobs) == 0 {
		return "nothing was enqueued"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d jobs were enqueued in all:", len(jobs))
	for _, job := range jobs[:min(len(jobs), listedMax)] {
		args := []rune(string(job.Args))
		if len(args) > shownMax {
			args = append(args[:shownMax], '…')
		}
		fmt.Fprintf(&text, "\n  %d %s %s", job.ID, job.Kind, string(args))
		fmt.Fprintf(&text, " (queue %s, %s", job.Queue, job.State)
		if job.UniqueKey != "" {
			fmt.Fprintf(&text, ", unique key %s", job.UniqueKey)
		}
		text.WriteString(")")
	}
	if len(jobs) > listedMax {
		fmt.Fprintf(&text, "\n  and %d more", len(jobs)-listedMax)
	}
	return text.String()
}
