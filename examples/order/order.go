package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// Order is the job: its args, and the name of its kind.
type Order struct {
	ID    int64  `json:"id"`
	Item  string `json:"item"`
	Cents int64  `json:"cents"`
}

// Kind names the handler.
func (Order) Kind() string { return "order" }

// Shipment is what the event "shipped order 7" brings.
type Shipment struct {
	Parcel string `json:"parcel"`
}

// handle runs from its beginning each time. What is done already is not done again.
func (s *shop) handle(ctx context.Context, job *worker.Job[Order]) error {
	order := job.Args
	reserved, err := jobq.StepTx(ctx, s.pool, "reserve", func(ctx context.Context, tx pgx.Tx) (bool, error) {
		return takeFromStock(ctx, tx, order)
	})
	if err != nil {
		return err
	}
	if !reserved {
		return s.tell(ctx, order, "sold out", "you were not charged")
	}
	paid, err := jobq.Step(ctx, "charge", func(ctx context.Context) (bool, error) {
		return s.charge(ctx, order)
	})
	if err != nil {
		return err
	}
	if !paid {
		return s.giveUp(ctx, order, "declined", "the card was not accepted")
	}
	shipment, err := jobq.WaitEvent[Shipment](ctx, fmt.Sprintf("shipped order %d", order.ID), s.shipWithin)
	if errors.Is(err, jobq.ErrEventTimeout) {
		_, err := jobq.Step(ctx, "refund", func(ctx context.Context) (any, error) { return nil, s.refund(ctx, order) })
		if err != nil {
			return err
		}
		return s.giveUp(ctx, order, "too late", "you have your money back")
	}
	if err != nil {
		return err
	}
	if err := s.tell(ctx, order, "shipped", "in parcel "+shipment.Parcel); err != nil {
		return err
	}
	if err := jobq.Sleep(ctx, "before the review", s.reviewAfter); err != nil {
		return err
	}
	return s.tell(ctx, order, "review", "how do you like it?")
}

// giveUp puts the item back, and says why.
func (s *shop) giveUp(ctx context.Context, order Order, why, text string) error {
	_, err := jobq.StepTx(ctx, s.pool, "put back", func(ctx context.Context, tx pgx.Tx) (any, error) {
		return nil, putBack(ctx, tx, order)
	})
	if err != nil {
		return err
	}
	return s.tell(ctx, order, why, text)
}

// tell mails the customer, once about each subject.
func (s *shop) tell(ctx context.Context, order Order, subject, text string) error {
	_, err := jobq.Step(ctx, "mail "+subject, func(ctx context.Context) (any, error) {
		return nil, s.mail(ctx, order, subject, text)
	})
	return err
}
