package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// shop has what the workflow does, apart from its order.
type shop struct {
	pool        *pgxpool.Pool
	shipWithin  time.Duration // how long the shipment is waited for
	reviewAfter time.Duration // after the shipment
}

// cardLimit is the amount in cents above which cards are declined.
const cardLimit = 1_000_00

// takeFromStock says whether there was one left.
func takeFromStock(ctx context.Context, tx pgx.Tx, order Order) (bool, error) {
	tag, err := tx.Exec(ctx, "update public.stock set pieces = pieces - 1 where item = $1 and pieces > 0", order.Item)
	return tag.RowsAffected() == 1, err
}

func putBack(ctx context.Context, tx pgx.Tx, order Order) error {
	_, err := tx.Exec(ctx, "update public.stock set pieces = pieces + 1 where item = $1", order.Item)
	return err
}

// charge says whether the card was charged. That it was declined is a result, which is
// stored; an error is not, and the job runs again later.
func (s *shop) charge(ctx context.Context, order Order) (paid bool, err error) {
	if order.Cents > cardLimit {
		return false, nil
	}
	return true, s.ask(ctx, "charge", order, fmt.Sprintf("%d cents", order.Cents))
}

func (s *shop) refund(ctx context.Context, order Order) error {
	return s.ask(ctx, "refund", order, fmt.Sprintf("%d cents", order.Cents))
}

func (s *shop) mail(ctx context.Context, order Order, subject, text string) error {
	return s.ask(ctx, "mail "+subject, order, text)
}

// ask stands for a request to the card company or the mail provider. It may come twice,
// with the same key. They do it once, as such services do.
func (s *shop) ask(ctx context.Context, what string, order Order, content string) error {
	key := fmt.Sprintf("%s order %d", what, order.ID)
	_, err := s.pool.Exec(ctx, `
		with asked as (insert into outside.request (key) values ($1))
		insert into outside.done (key, content) values ($1, $2) on conflict (key) do nothing`, key, content)
	return err
}
