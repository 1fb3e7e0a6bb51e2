package db

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
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

// endSettings are HotSettings of a transaction that ends runs. It gets its id here, before
// any statement of it looks who waits for these: see parents_ended.
const endSettings = HotSettings + ", pg_current_xact_id()"

// PrunedSettings have a statement planned with its arguments, so that it locks
// only those days of the history that it can need. They end with the transaction.
const PrunedSettings = `select set_config('plan_cache_mode', 'force_custom_plan', true),
  set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`

// Batcher sends a batch of statements: a pool, a connection or a transaction.
type Batcher interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// Exchange is what a worker tells the database and asks of it in one round
// trip and one commit.
type Exchange struct {
	Owner       string
	Queue       string // whose jobs they are; needed with HasLimits
	Completions []Completion
	Endings     []Ending
	// Unrecorded are runs whose ends are stored on their own rows, and not yet in
	// their lease: see Exchanged.Unrecorded.
	Unrecorded []Slot
	Lease      time.Duration   // which leases get when ends are recorded in them while others of their jobs run; 0 for none
	Claim      *JobClaimParams // nil to claim nothing; without segments it looks at the whole line
	// Begin says how far jobs of leases may begin: see Exchanged.Begun. ClaimsAhead says that
	// the claim may take more jobs than there are SlotsFree. These have not begun, except that the
	// first BeginSoon of them and the others may have begun if none would fail when it is lost.
	Begin       []LeaseBegin
	ClaimsAhead bool
	BeginSoon   int
	// HasLimits says that the queue has a limit or a rate, which the claim then keeps;
	// without, it takes nothing from such a queue. SlotsFree are the slots that have no job.
	HasLimits bool
	SlotsFree int
	// HasKeys says that the queue has jobs with partition keys; without, none of these is
	// claimed. OnlyKeyed leaves the others where they are. EndedKeys are the keys of the
	// runs that have ended, each once. LanePass is what the claim before it has answered; Sharing says that
	// this one may go on beside others of the queue, and so miss jobs: see lane_claim.
	HasKeys   bool
	OnlyKeyed bool
	EndedKeys []string
	LanePass  LanePass
	Sharing   bool
}

// hasTurns says whether claims of the queue take turns.
func (e *Exchange) hasTurns() bool { return e.HasLimits || e.HasKeys }

// KeyedJob is a claimed job with a partition key.
type KeyedJob struct {
	JobClaimRow
	PartitionKey string
}

// Exchanged is the database's answer.
type Exchanged struct {
	// Completed are ids of Completions, and of Endings whose runs had completed before,
	// as by RunCompleteTx. What is in none of the first three was not ours any more.
	Completed []int64
	Ended     []RunEndRow
	Busy      []int64 // in another transaction's hands, with ErrBusy
	// Unrecorded are runs whose ends are stored, and whose lease another session had
	// locked. Hand them in again: the lease counts them as running.
	Unrecorded []Slot
	// OnRow are Completions that may have ended on their own rows the second time,
	// which has failed. Hand them in again with OnRow: a lease that was locked just
	// then does not know of them, and would count them once more.
	OnRow    []int64
	Recorded []int64       // leases in which ends were recorded, and which got their time
	Begun    []int64       // leases of Exchange.Begin that know now how far their jobs may begin
	Claimed  []JobClaimRow // in any order
	Keyed    []KeyedJob    // as Claimed, of those with partition keys
	// KeysMore says that another claim may find more jobs with keys, and LanePass where it begins.
	// HasKeyLimit is false for certain only if the queue's keys have no limit and no rate. KeysWait
	// is in how long the next throttled key may start a job, 0: none is known.
	KeysMore    bool
	LanePass    LanePass
	HasKeyLimit bool
	KeysWait    time.Duration
	// Admission is what the limits of the queue have said to the claim, if it has some.
	Admission Admission
}

// ErrBusy says that other transactions had locked some rows, and that all else was
// done. It is an error so that no caller takes the runs of these rows for lost.
var ErrBusy = errors.New("in another transaction's hands")

// Exchange finishes runs and claims the next jobs, all or nothing. After an error
// it is unknown whether it took effect, unless the server has refused it.
//
// It never waits for a row. An end may not be stored at once: because of a concurrent
// edit, because another session has locked the row, or because the lease refuses it.
// Exchange then tries these ends a second time; completions that were not retried go
// to the jobs' own rows this time. Ends that still cannot be stored are in
// Exchanged.Busy, and the error is ErrBusy. With ErrBusy, or with an error of the
// second try, the answer is still valid for the rest: the caller has the claimed jobs.
//
// The ends of one lease must not be in two exchanges at once: the second would
// find the lease locked.
func (s *Schema) Exchange(ctx context.Context, conn Batcher, exchange Exchange) (Exchanged, error) {
	first := newRound(exchange)
	if err := first.send(ctx, s, conn, exchange.Claim); err != nil {
		return Exchanged{}, err
	}
	answer := first.answer()
	answer.Begun = first.begun()
	missing, some := first.missing(answer)
	if !some {
		return answer, nil
	}
	second := newRound(missing)
	second.again = true
	if err := second.send(ctx, s, conn, nil); err != nil {
		answer.OnRow = second.onRowIDs()
		return answer, err
	}
	rest := second.answer()
	answer.Completed, answer.Ended = append(answer.Completed, rest.Completed...), append(answer.Ended, rest.Ended...)
	answer.Unrecorded, answer.Recorded = append(answer.Unrecorded, rest.Unrecorded...), append(answer.Recorded, rest.Recorded...)
	if answer.Busy = rest.Busy; len(answer.Busy) > 0 {
		return answer, ErrBusy
	}
	return answer, nil
}

// round is one round trip of an exchange.
type round struct {
	Exchange
	again bool // what of it is not stored is asked after
	// claims are when the leases were claimed; of two with the same id the later,
	// since the earlier is lost.
	claims map[int64]time.Time

	// answers
	leases  map[int64]LeaseEndRow
	ended   []RunEndRow
	plain   map[int64][]int16 // slots that had plainly succeeded before, by lease
	before  map[int64]bool    // jobs that have completed on their own rows, now or before
	held    []int64
	claimed []JobClaimRow
	keyed   []KeyedJob
	more    bool     // see Exchanged.KeysMore
	pass    LanePass // see Exchanged.LanePass

	hasKeyLimit bool          // see Exchanged.HasKeyLimit
	keysWait    time.Duration // see Exchanged.KeysWait

	admission Admission
}

func newRound(exchange Exchange) *round {
	claims := make(map[int64]time.Time)
	note := func(at Slot) {
		if at.ClaimedAt.After(claims[at.Token]) {
			claims[at.Token] = at.ClaimedAt
		}
	}
	for i := range exchange.Completions {
		note(exchange.Completions[i].Slot)
	}
	for _, e := range exchange.Endings {
		note(e.Slot)
	}
	for _, at := range exchange.Unrecorded {
		note(at)
	}
	for _, b := range exchange.Begin {
		note(Slot{Token: b.Token, ClaimedAt: b.ClaimedAt})
	}
	return &round{Exchange: exchange, claims: claims, leases: make(map[int64]LeaseEndRow), plain: make(map[int64][]int16), before: make(map[int64]bool)}
}

// send does it in the order in which the statements depend on one another: ends
// on rows of their own, the leases, what is left, what had ended before, the claim.
func (r *round) send(ctx context.Context, s *Schema, conn Batcher, claim *JobClaimParams) error {
	batch := &pgx.Batch{}
	if r.ends() > 0 {
		batch.Queue(endSettings)
	} else {
		batch.Queue(HotSettings)
	}
	r.queueRunEnd(ctx, s, batch)
	r.queueLeaseEnd(ctx, s, batch)
	if r.again { // in this order: what a first try stores in between is held no more, and is seen in its lease
		r.queueHeld(ctx, s, batch)
		r.queueLook(ctx, s, batch)
	}
	if len(r.EndedKeys) > 0 {
		s.Queue(batch, func(q *Queries) { _ = q.LaneHintsAdd(ctx, r.Queue, r.EndedKeys, claim == nil) })
	}
	if claim != nil {
		r.queueClaim(ctx, s, batch, claim)
	}
	if ended := r.ends(); r.hasTurns() && (claim != nil || ended > 0) {
		s.Queue(batch, func(q *Queries) {
			_ = q.QueueCharge(ctx, r.Queue, int32(ended)) // #nosec G115 -- as many as an exchange has
		})
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("finish and claim: %w", err)
	}
	return nil
}

// completions are pointers to them: they are wide, and there are many.
func (r *round) completions() iter.Seq[*Completion] {
	return func(yield func(*Completion) bool) {
		for i := range r.Completions {
			if !yield(&r.Completions[i]) {
				return
			}
		}
	}
}

// onRow says whether a completion is to end on its own row in this round.
func (r *round) onRow(c *Completion) bool { return !c.isPlain() || r.again && !c.Retried }

// onRowIDs are the completions of which that is so.
func (r *round) onRowIDs() (ids []int64) {
	for c := range r.completions() {
		if r.onRow(c) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// inLease says whether a completion is to end in its lease in this round.
func (r *round) inLease(c *Completion) bool { return c.isPlain() && !r.again && r.isCurrent(c.Slot) }

func (r *round) queueRunEnd(ctx context.Context, s *Schema, batch *pgx.Batch) {
	params := RunEndParams{Owner: r.Owner}
	add := func(at Slot, retried bool, outcome, text, output string, delay Delay, final, quiet bool, ranUs int64, result, usage json.RawMessage) {
		params.Ids, params.Tokens = append(params.Ids, at.ID), append(params.Tokens, at.Token)
		params.ClaimedAts, params.Retried = append(params.ClaimedAts, Timestamp(at.ClaimedAt)), append(params.Retried, retried)
		params.Outcomes, params.Errors = append(params.Outcomes, outcome), append(params.Errors, text)
		params.Outputs, params.Delays = append(params.Outputs, output), append(params.Delays, delay.interval())
		params.Finals, params.Quiet, params.RanUs = append(params.Finals, final), append(params.Quiet, quiet), append(params.RanUs, ranUs)
		params.Results, params.Usages = append(params.Results, result), append(params.Usages, usage)
	}
	for c := range r.completions() {
		if r.onRow(c) {
			add(c.Slot, c.Retried, "completed", "", c.Output, Delay{}, false, false, max(c.Ran.Microseconds(), 0), c.Result, c.Usage)
		}
	}
	for _, e := range r.Endings {
		add(e.Slot, false, e.Outcome, e.Error, e.Output, e.Delay, e.Final, e.Quiet, e.ranUs(), nil, e.Usage)
	}
	if len(params.Ids) == 0 {
		return
	}
	s.Queue(batch, func(q *Queries) { _, _ = q.RunEnd(ctx, params) }).Query(func(rows pgx.Rows) (err error) {
		r.ended, err = pgx.CollectRows(rows, pgx.RowToStructByPos[RunEndRow])
		return err
	})
}

// isCurrent says whether a run is of the lease that is asked for under its token.
// The end of another must not be recorded in that lease: it has other jobs in the same slots.
func (r *round) isCurrent(at Slot) bool { return at.ClaimedAt.Equal(r.claims[at.Token]) }

// elsewhere are the runs that end on their own rows in this round, if these are stored.
func (r *round) elsewhere() (slots []Slot) {
	for c := range r.completions() {
		if r.onRow(c) && r.isCurrent(c.Slot) {
			slots = append(slots, c.Slot)
		}
	}
	for _, e := range r.Endings {
		if r.isCurrent(e.Slot) {
			slots = append(slots, e.Slot)
		}
	}
	return slots
}

// unrecorded are the runs that have ended on their own rows before.
func (r *round) unrecorded() (slots []Slot) {
	for _, at := range r.Unrecorded {
		if r.isCurrent(at) {
			slots = append(slots, at)
		}
	}
	return slots
}

// queueLeaseEnd records in the leases what has ended, in the order of their ids.
func (r *round) queueLeaseEnd(ctx context.Context, s *Schema, batch *pgx.Batch) {
	params := LeaseEndParams{Owner: r.Owner, Lease: Interval(r.Lease), Plain: []int16{}} // nil would be null, and no slot is among null
	tokens := make(map[int64]struct{})
	for _, at := range append(r.unrecorded(), r.elsewhere()...) {
		params.ElsewhereLeases, params.ElsewhereSlots = append(params.ElsewhereLeases, at.Token), append(params.ElsewhereSlots, at.Slot)
		params.ElsewhereJobs = append(params.ElsewhereJobs, at.ID)
		tokens[at.Token] = struct{}{}
	}
	plain := make(map[int64][]*Completion)
	for c := range r.completions() {
		if r.inLease(c) {
			plain[c.Token] = append(plain[c.Token], c)
			tokens[c.Token] = struct{}{}
		}
	}
	begun := r.beginSlots(tokens)
	if len(tokens) == 0 {
		return
	}
	params.Ids = slices.Sorted(maps.Keys(tokens))
	for _, token := range params.Ids {
		params.Begun = append(params.Begun, begun[token])
		params.ClaimedAts = append(params.ClaimedAts, Timestamp(r.claims[token]))
		params.Lows = append(params.Lows, int32(len(params.Plain)+1)) // #nosec G115 -- as many as an exchange has
		for _, c := range plain[token] {
			params.Plain = append(params.Plain, c.Slot.Slot)
		}
		params.Highs = append(params.Highs, int32(len(params.Plain))) // #nosec G115
		params.sum(token, plain[token])
	}
	s.Queue(batch, func(q *Queries) { _, _ = q.LeaseEnd(ctx, params) }).Query(func(rows pgx.Rows) error {
		var row LeaseEndRow
		_, err := pgx.ForEachRow(rows, []any{&row.ID, &row.Recorded, &row.Held}, func() error {
			r.leases[row.ID] = row
			return nil
		})
		return err
	})
}

// sum adds the completions of one lease up by kind.
func (p *LeaseEndParams) sum(token int64, completions []*Completion) {
	slices.SortFunc(completions, func(a, b *Completion) int { return cmp.Compare(a.Kind, b.Kind) })
	for i, c := range completions {
		if i == 0 || completions[i-1].Kind != c.Kind {
			p.SumLeases, p.SumKinds = append(p.SumLeases, token), append(p.SumKinds, c.Kind)
			p.SumJobs, p.SumWaited = append(p.SumJobs, 0), append(p.SumWaited, 0)
		}
		last := len(p.SumJobs) - 1
		p.SumJobs[last]++
		p.SumWaited[last] += c.Waited.Seconds()
	}
}

// queueLook asks which of the completions were recorded in the leases before, as
// by an exchange whose answer was lost.
func (r *round) queueLook(ctx context.Context, s *Schema, batch *pgx.Batch) {
	tokens := make(map[int64]struct{})
	for c := range r.completions() {
		tokens[c.Token] = struct{}{}
	}
	if len(tokens) == 0 {
		return
	}
	ids := slices.Sorted(maps.Keys(tokens))
	claimedAts := make([]pgtype.Timestamptz, len(ids))
	for i, id := range ids {
		claimedAts[i] = Timestamp(r.claims[id])
	}
	s.Queue(batch, func(q *Queries) { _, _ = q.LeaseLook(ctx, ids, claimedAts, r.Owner) }).Query(func(rows pgx.Rows) error {
		var row LeaseLookRow
		_, err := pgx.ForEachRow(rows, []any{&row.ID, &row.Plain}, func() error {
			r.plain[row.ID] = row.Plain
			return nil
		})
		return err
	})
}

// queueHeld asks which of the runs are still the owner's, and which have
// completed, after the statements that were to end them.
func (r *round) queueHeld(ctx context.Context, s *Schema, batch *pgx.Batch) {
	params := RunHeldParams{Owner: r.Owner}
	add := func(at Slot) {
		params.Ids, params.Tokens = append(params.Ids, at.ID), append(params.Tokens, at.Token)
		params.ClaimedAts = append(params.ClaimedAts, Timestamp(at.ClaimedAt))
	}
	for c := range r.completions() {
		add(c.Slot)
	}
	for _, e := range r.Endings {
		add(e.Slot)
	}
	if len(params.Ids) == 0 {
		return
	}
	s.Queue(batch, func(q *Queries) { _, _ = q.RunHeld(ctx, params) }).
		Query(func(rows pgx.Rows) error {
			var row RunHeldRow
			_, err := pgx.ForEachRow(rows, []any{&row.ID, &row.Held}, func() error {
				if row.Held {
					r.held = append(r.held, row.ID)
				} else {
					r.before[row.ID] = true
				}
				return nil
			})
			return err
		})
}

func (r *round) queueClaim(ctx context.Context, s *Schema, batch *pgx.Batch, claim *JobClaimParams) {
	sent := *claim // what the caller has given stays as it is: another claim may be sent from it at the same time
	claim = &sent
	if claim.FromPriorities == nil {
		WholeLine(claim)
	}
	claim.Admitted = r.hasTurns()
	claim.BeginCount, claim.BeginAhead = r.BeginCounts()
	if r.hasTurns() {
		r.queueAdmit(ctx, s, batch, claim)
	}
	if r.HasKeys {
		r.queueLaneClaim(ctx, s, batch, claim)
	}
	if r.OnlyKeyed {
		return
	}
	s.Queue(batch, func(q *Queries) {
		_, _ = q.JobClaim(ctx, *claim)
	}).Query(func(rows pgx.Rows) (err error) {
		r.claimed, err = scanClaimed(rows, int(claim.JobCount))
		return err
	})
}

// ends are how many runs have ended.
func (r *round) ends() int { return len(r.Completions) + len(r.Endings) + len(r.Unrecorded) }

// scanClaimed is the generated query's scan, which the generated code offers
// for a single statement only. It looks at each column's type once and not for
// each row, and takes JSON as the bytes that it is.
func scanClaimed(rows pgx.Rows, expected int) ([]JobClaimRow, error) {
	defer rows.Close()
	var i JobClaimRow
	columns := i.columns()
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

// columns are the places that a row of JobClaim is scanned into.
func (i *JobClaimRow) columns() []any {
	return []any{
		&i.ID, &i.LeaseToken, &i.Slot, &i.Position, &i.Priority, &i.Attempts, &i.MaxAttempts, &i.Crashes, &i.Queue, &i.Kind,
		&i.CreatedAt, &i.RunAt, &i.StartedAt, &i.TimeoutMs, (*[]byte)(&i.Args), (*[]byte)(&i.Checkpoint),
		(*[]byte)(&i.Metadata), &texts{&i.Tags}, &i.LastError, &i.ClearReason, &i.HasKey, &i.Lost,
	}
}
