package db

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// HotSettings keep the plans of the hot statements what they are meant to be:
// index lookups in nested loops, made once per connection. Left alone, the
// planner trusts statistics, and statistics of a queue table are wrong most
// of the time: a plan made while the table was empty reads the whole table
// once it is full. The settings end with the batch's own transaction, so they
// cannot leak to others behind a pooler.
const HotSettings = `select set_config('plan_cache_mode', 'force_generic_plan', true),
  set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
  set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
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
}

// Exchange is what a worker tells the database and asks of it in one round
// trip and one commit. Completions and Endings must be sorted by id.
type Exchange struct {
	Owner       string
	Completions []Completion
	Endings     []Ending
	Claim       *JobClaimParams // nil to claim nothing
}

// Exchanged is the database's answer.
type Exchanged struct {
	Completed []int64 // ids; those asked for and missing were not ours any more
	Ended     []JobEndRow
	Claimed   []JobClaimRow // in any order
}

// Exchange finishes runs and claims the next jobs, all or nothing. After an
// error whether it took effect is unknown, unless the server said no.
func (s *Schema) Exchange(ctx context.Context, conn Batcher, exchange Exchange) (Exchanged, error) {
	var answer Exchanged
	batch := &pgx.Batch{}
	batch.Queue(HotSettings)
	if len(exchange.Completions) > 0 {
		s.queueCompletions(batch, exchange, &answer)
	}
	if len(exchange.Endings) > 0 {
		s.queueEndings(batch, exchange, &answer)
	}
	if claim := exchange.Claim; claim != nil {
		batch.Queue(s.SQL(JobClaim), claim.Lease, claim.Owner, claim.Queue, claim.Kinds, claim.JobCount).
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

func (s *Schema) queueCompletions(batch *pgx.Batch, exchange Exchange, answer *Exchanged) {
	count := len(exchange.Completions)
	ids, tokens, results := make([]int64, count), make([]int64, count), make([]json.RawMessage, count)
	var withOutput []int
	for i, completion := range exchange.Completions {
		ids[i], tokens[i], results[i] = completion.ID, completion.Token, completion.Result
		if completion.Output != "" {
			withOutput = append(withOutput, i)
		}
	}
	answer.Completed = make([]int64, 0, count)
	batch.Queue(s.SQL(JobComplete), ids, tokens, results, exchange.Owner).Query(func(rows pgx.Rows) error {
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
	outputIDs, outputTokens, outputs := make([]int64, 0, count), make([]int64, 0, count), make([]string, 0, count)
	for _, i := range withOutput {
		outputIDs, outputTokens = append(outputIDs, ids[i]), append(outputTokens, tokens[i])
		outputs = append(outputs, exchange.Completions[i].Output)
	}
	batch.Queue(s.SQL(AttemptKeepOutput), exchange.Owner, outputIDs, outputTokens, outputs)
}

func (s *Schema) queueEndings(batch *pgx.Batch, exchange Exchange, answer *Exchanged) {
	var params JobEndParams
	for _, ending := range exchange.Endings {
		params.Ids, params.Tokens = append(params.Ids, ending.ID), append(params.Tokens, ending.Token)
		params.Outcomes, params.Errors = append(params.Outcomes, ending.Outcome), append(params.Errors, ending.Error)
		params.Outputs, params.Delays = append(params.Outputs, ending.Output), append(params.Delays, ending.Delay.interval())
		params.Finals, params.Started = append(params.Finals, ending.Final), append(params.Started, ending.Started)
	}
	batch.Queue(s.SQL(JobEnd), params.Ids, params.Tokens, params.Outcomes, params.Errors, params.Outputs, params.Delays,
		params.Finals, params.Started, exchange.Owner).
		Query(func(rows pgx.Rows) (err error) {
			answer.Ended, err = pgx.CollectRows(rows, pgx.RowToStructByPos[JobEndRow])
			return err
		})
}

// scanClaimed is the generated query's scan, which the generated code offers
// for a single statement only.
func scanClaimed(rows pgx.Rows, expected int) ([]JobClaimRow, error) {
	defer rows.Close()
	var claimed []JobClaimRow
	for rows.Next() {
		if claimed == nil {
			claimed = make([]JobClaimRow, 0, expected)
		}
		var i JobClaimRow
		if err := rows.Scan(&i.ID, &i.Position, &i.LeaseToken, &i.Priority, &i.Attempts, &i.MaxAttempts, &i.Crashes, &i.Queue,
			&i.Kind, &i.CreatedAt, &i.RunAt, &i.StartedAt, &i.TimeoutMs, &i.Args, &i.Checkpoint, &i.Metadata, &i.Tags,
			&i.LastError); err != nil {
			return nil, err
		}
		claimed = append(claimed, i)
	}
	return claimed, rows.Err()
}

// ExtendLeases is LeaseExtend with the plan that the hot statements get.
func (s *Schema) ExtendLeases(ctx context.Context, conn Batcher, params LeaseExtendParams) ([]LeaseExtendRow, error) {
	var answers []LeaseExtendRow
	batch := &pgx.Batch{}
	batch.Queue(HotSettings)
	batch.Queue(s.SQL(LeaseExtend), params.Owner, params.Ids, params.Tokens, params.Leases).Query(func(rows pgx.Rows) (err error) {
		answers, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LeaseExtendRow])
		return err
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("extend leases: %w", err)
	}
	return answers, nil
}
