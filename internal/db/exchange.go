package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// HotSettings keep the plans of the hot statements what they are meant to be,
// made once per connection. Left alone, the planner trusts statistics, and
// statistics of a queue table are wrong most of the time: a plan made while the
// table was empty reads the whole table once it is full. The statements look
// rows up in subqueries of their own, which can only be index lookups then, and
// join nothing but their own results, by hashing. The settings end with the
// batch's own transaction, so they cannot leak to others behind a pooler.
const HotSettings = `select set_config('plan_cache_mode', 'force_generic_plan', true),
  set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
  set_config('enable_nestloop', 'off', true), set_config('enable_mergejoin', 'off', true),
  set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`

// Batcher sends a batch of statements: a pool, a connection or a transaction.
type Batcher interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// Completion is a run that succeeded.
type Completion struct {
	ID     int64
	Token  int64
	Result json.RawMessage // nil for none
	Output string          // "" for none
	Usage  json.RawMessage // of a program; nil for none
	Ran    time.Duration   // how long the run took; 0 when that is not known
}

// Ending is a run that did not simply succeed; see JobEnd.
type Ending struct {
	ID      int64
	Token   int64
	Outcome string
	Error   string
	Output  string
	Delay   Delay
	Final   bool
	Started bool
	Ran     time.Duration   // how long the run took, if it started; 0 when that is not known
	Quiet   bool            // released, and workers are not to look for it at the head
	Usage   json.RawMessage // of a program; nil for none
}

// Exchange is what a worker tells the database and asks of it in one round
// trip and one commit.
type Exchange struct {
	Owner       string
	Completions []Completion
	Endings     []Ending
	Claim       *JobClaimParams // nil to claim nothing; without segments it looks at the whole line

	again bool // and what of this does not come back is asked after
}

// Exchanged is the database's answer.
type Exchanged struct {
	Completed []int64 // ids; those asked for and in none of the first three were not ours any more
	Ended     []JobEndRow
	Busy      []int64       // in another transaction's hands, with ErrBusy
	Claimed   []JobClaimRow // in any order
}

// ErrBusy says that some rows were in another transaction's hands, and that all
// else was done. It is an error so that nobody takes these for lost.
var ErrBusy = errors.New("in another transaction's hands")

// Exchange finishes runs and claims the next jobs, all or nothing. After an
// error whether it took effect is unknown, unless the server said no.
//
// It never waits for a row. What an edit at the same moment has hidden from the
// statements, such as a heartbeat that committed in between, or what somebody
// has locked, is asked for a second time, and is busy if that does not help. An
// error of the second time, or ErrBusy, comes with the answer to the rest, whose
// claims are the caller's.
func (s *Schema) Exchange(ctx context.Context, conn Batcher, exchange Exchange) (Exchanged, error) {
	answer, err := s.exchangeOnce(ctx, conn, exchange)
	if err != nil {
		return Exchanged{}, err
	}
	missing, some := answer.missing(exchange)
	if !some {
		return answer, nil
	}
	missing.again = true
	again, err := s.exchangeOnce(ctx, conn, missing)
	if err != nil {
		return answer, err
	}
	answer.Completed, answer.Ended = append(answer.Completed, again.Completed...), append(answer.Ended, again.Ended...)
	if answer.Busy = again.Busy; len(answer.Busy) > 0 {
		return answer, ErrBusy
	}
	return answer, nil
}

// missing is what was asked for and not answered.
func (e *Exchanged) missing(exchange Exchange) (missing Exchange, some bool) {
	if len(e.Completed) == len(exchange.Completions) && len(e.Ended) == len(exchange.Endings) {
		return Exchange{}, false
	}
	answered := make(map[int64]bool, len(e.Completed)+len(e.Ended))
	for _, id := range e.Completed {
		answered[id] = true
	}
	for _, ended := range e.Ended {
		answered[ended.ID] = true
	}
	missing.Owner = exchange.Owner
	for _, completion := range exchange.Completions {
		if !answered[completion.ID] {
			missing.Completions = append(missing.Completions, completion)
		}
	}
	for _, ending := range exchange.Endings {
		if !answered[ending.ID] {
			missing.Endings = append(missing.Endings, ending)
		}
	}
	return missing, true
}

func (s *Schema) exchangeOnce(ctx context.Context, conn Batcher, exchange Exchange) (Exchanged, error) {
	var answer Exchanged
	batch := &pgx.Batch{}
	batch.Queue(HotSettings)
	if len(exchange.Completions) > 0 {
		s.queueCompletions(ctx, batch, exchange, &answer)
	}
	if len(exchange.Endings) > 0 {
		s.queueEndings(ctx, batch, exchange, &answer)
	}
	if exchange.again {
		s.queueHeld(ctx, batch, exchange, &answer)
	}
	if claim := exchange.Claim; claim != nil {
		if claim.FromPriorities == nil {
			WholeLine(claim)
		}
		s.Queue(batch, func(q *Queries) { _, _ = q.JobClaim(ctx, *claim) }).
			Query(func(rows pgx.Rows) (err error) {
				answer.Claimed, err = scanClaimed(rows, int(claim.JobCount))
				return err
			})
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return Exchanged{}, fmt.Errorf("finish and claim: %w", err)
	}
	return answer, nil
}

// queueHeld asks which of the runs that the exchange speaks of are still the
// owner's, after the statements that were to end them.
func (s *Schema) queueHeld(ctx context.Context, batch *pgx.Batch, exchange Exchange, answer *Exchanged) {
	ids := make([]int64, 0, len(exchange.Completions)+len(exchange.Endings))
	tokens := make([]int64, 0, cap(ids))
	for _, completion := range exchange.Completions {
		ids, tokens = append(ids, completion.ID), append(tokens, completion.Token)
	}
	for _, ending := range exchange.Endings {
		ids, tokens = append(ids, ending.ID), append(tokens, ending.Token)
	}
	s.Queue(batch, func(q *Queries) { _, _ = q.LeaseHeld(ctx, ids, tokens, exchange.Owner) }).
		Query(func(rows pgx.Rows) (err error) {
			answer.Busy, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
}

func (s *Schema) queueCompletions(ctx context.Context, batch *pgx.Batch, exchange Exchange, answer *Exchanged) {
	count := len(exchange.Completions)
	ids, tokens, results := make([]int64, count), make([]int64, count), make([]json.RawMessage, count)
	var withOutput []int
	for i, completion := range exchange.Completions {
		ids[i], tokens[i], results[i] = completion.ID, completion.Token, completion.Result
		if completion.Output != "" || completion.Usage != nil {
			withOutput = append(withOutput, i)
		}
	}
	answer.Completed = make([]int64, 0, count)
	complete := JobCompleteParams{Ids: ids, Tokens: tokens, Results: results, Owner: exchange.Owner, SkipLocked: true}
	s.Queue(batch, func(q *Queries) { _, _ = q.JobComplete(ctx, complete) }).Query(func(rows pgx.Rows) error {
		var id int64
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			answer.Completed = append(answer.Completed, id)
			return nil
		})
		return err
	})
	if len(withOutput) == 0 {
		return
	}
	keep := AttemptKeepOutputParams{Owner: exchange.Owner}
	for _, i := range withOutput {
		keep.Ids, keep.Tokens = append(keep.Ids, ids[i]), append(keep.Tokens, tokens[i])
		keep.Outputs = append(keep.Outputs, exchange.Completions[i].Output)
		keep.Usages = append(keep.Usages, exchange.Completions[i].Usage)
		keep.RanUs = append(keep.RanUs, exchange.Completions[i].Ran.Microseconds())
	}
	s.Queue(batch, func(q *Queries) { _ = q.AttemptKeepOutput(ctx, keep) })
}

// ranUs is how long the run took, as JobEnd has it: below 0 when it never started.
func (e Ending) ranUs() int64 {
	if !e.Started {
		return -1
	}
	return max(e.Ran.Microseconds(), 0)
}

func (s *Schema) queueEndings(ctx context.Context, batch *pgx.Batch, exchange Exchange, answer *Exchanged) {
	params := JobEndParams{Owner: exchange.Owner}
	for _, ending := range exchange.Endings {
		params.Ids, params.Tokens = append(params.Ids, ending.ID), append(params.Tokens, ending.Token)
		params.Outcomes, params.Errors = append(params.Outcomes, ending.Outcome), append(params.Errors, ending.Error)
		params.Outputs, params.Delays = append(params.Outputs, ending.Output), append(params.Delays, ending.Delay.interval())
		params.Finals, params.RanUs = append(params.Finals, ending.Final), append(params.RanUs, ending.ranUs())
		params.Quiet = append(params.Quiet, ending.Quiet)
	}
	s.Queue(batch, func(q *Queries) { _, _ = q.JobEnd(ctx, params) }).
		Query(func(rows pgx.Rows) (err error) {
			answer.Ended, err = pgx.CollectRows(rows, pgx.RowToStructByPos[JobEndRow])
			return err
		})
	s.queueUsages(ctx, batch, exchange)
}

func (s *Schema) queueUsages(ctx context.Context, batch *pgx.Batch, exchange Exchange) {
	keep := AttemptKeepUsageParams{Owner: exchange.Owner}
	for _, ending := range exchange.Endings {
		if ending.Usage != nil {
			keep.Ids, keep.Tokens, keep.Usages = append(keep.Ids, ending.ID), append(keep.Tokens, ending.Token), append(keep.Usages, ending.Usage)
		}
	}
	if len(keep.Ids) > 0 {
		s.Queue(batch, func(q *Queries) { _ = q.AttemptKeepUsage(ctx, keep) })
	}
}

// scanClaimed is the generated query's scan, which the generated code offers
// for a single statement only. It looks at each column's type once and not for
// each row, and takes JSON as the bytes that it is.
func scanClaimed(rows pgx.Rows, expected int) ([]JobClaimRow, error) {
	defer rows.Close()
	var i JobClaimRow
	columns := []any{
		&i.ID, &i.Position, &i.LeaseToken, &i.Priority, &i.Attempts, &i.MaxAttempts, &i.Crashes, &i.Queue, &i.Kind,
		&i.CreatedAt, &i.RunAt, &i.StartedAt, &i.TimeoutMs, (*[]byte)(&i.Args), (*[]byte)(&i.Checkpoint),
		(*[]byte)(&i.Metadata), &i.Tags, &i.LastError, &i.ClearReason,
	}
	var claimed []JobClaimRow
	for rows.Next() {
		if err := rows.Scan(columns...); err != nil {
			return nil, err
		}
		if claimed == nil {
			claimed = make([]JobClaimRow, 0, expected)
		}
		claimed = append(claimed, i)
	}
	return claimed, rows.Err()
}

// Answers of ExtendLeases.
const (
	LeaseOK     = "ok"     // extended
	LeaseCancel = "cancel" // extended, but somebody asked the job to stop
	LeaseBusy   = "busy"   // in another transaction's hands: ask again
	LeaseLost   = "lost"   // not the caller's any more
)

// Extensions are leases to be extended, one by one: ids, tokens and the time
// that each gets, 0 to only ask after it.
type Extensions struct {
	Owner  string
	Ids    []int64
	Tokens []int64
	Leases []pgtype.Interval
}

// ExtendLeases extends leases, and answers for each id. Leases of one length,
// which mostly all are, take one statement.
func (s *Schema) ExtendLeases(ctx context.Context, conn Batcher, extensions Extensions) (map[int64]string, error) {
	answers := make(map[int64]string, len(extensions.Ids))
	groups := make(map[int64]*LeaseExtendParams)
	for i, id := range extensions.Ids {
		answers[id] = LeaseLost
		lease := extensions.Leases[i]
		group, ok := groups[lease.Microseconds]
		if !ok {
			group = &LeaseExtendParams{Owner: extensions.Owner, Lease: lease}
			groups[lease.Microseconds] = group
		}
		group.Ids, group.Tokens = append(group.Ids, id), append(group.Tokens, extensions.Tokens[i])
	}
	batch := &pgx.Batch{}
	batch.Queue(HotSettings)
	for _, group := range groups {
		s.Queue(batch, func(q *Queries) { _, _ = q.LeaseExtend(ctx, *group) }).Query(func(rows pgx.Rows) error {
			var row LeaseExtendRow
			_, err := pgx.ForEachRow(rows, []any{&row.ID, &row.Answer}, func() error {
				if row.Answer != LeaseBusy || answers[row.ID] == LeaseLost { // busy is said of the extended ones too
					answers[row.ID] = row.Answer
				}
				return nil
			})
			return err
		})
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("extend leases: %w", err)
	}
	return answers, nil
}

// Queue adds a generated query to a batch. The generated function knows the
// order of the parameters, which is sqlc's and changes with the text, so it is
// called on a connection that only writes down what it is given.
func (s *Schema) Queue(batch *pgx.Batch, call func(*Queries)) *pgx.QueuedQuery {
	r := recorder{schema: s}
	call(New(&r))
	return batch.Queue(r.sql, r.args...)
}

// recorder is the connection of Queue.
type recorder struct {
	schema *Schema
	sql    string
	args   []any
}

// errRecorded ends the generated function, whose caller ignores it.
var errRecorded = errors.New("recorded")

func (r *recorder) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	r.sql, r.args = r.schema.SQL(sql), args
	return pgconn.CommandTag{}, errRecorded
}

func (r *recorder) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	r.sql, r.args = r.schema.SQL(sql), args
	return nil, errRecorded
}

// QueryRow is for :one queries, which no batch of ours has.
func (r *recorder) QueryRow(context.Context, string, ...any) pgx.Row { return nil }
