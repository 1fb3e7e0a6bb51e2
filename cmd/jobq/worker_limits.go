package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/config"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/operator"
)

// setLimitsAtStart makes the limits of the queues that a worker claims from what the config
// file says, when it starts. A limit that the file does not name stays as it is. Where all is so already, no
// privilege is needed but to read. A database that is away is waited for, as the worker does.
func (a *app) setLimitsAtStart(ctx context.Context, log *slog.Logger, client *jobq.Client, file *config.File, claimed map[string]int) error {
	limited := slices.DeleteFunc(slices.Sorted(maps.Keys(file.Queues)), func(name string) bool {
		_, claims := claimed[name]
		queue := file.Queues[name]
		return !claims || queue.Change == (operator.QueueChange{}) && len(queue.KeyWeights) == 0
	})
	if len(limited) == 0 {
		return nil
	}
	warn := func(err error) { log.Warn("limits of the config file cannot be set yet, trying on", "error", err) }
	return setAtStart(ctx, warn,
		"set it with \"jobq queues set\", or leave limits out of the workers' file", func(ctx context.Context) error {
			return a.setLimits(ctx, log, client, file, limited)
		})
}

// setAtStart calls what sets something that the config file declares. It tries on while the database is away, with one
// warning. Without the privilege to set it, the error says what to do.
func setAtStart(ctx context.Context, warnFunc func(error), advice string, setFunc func(ctx context.Context) error) error {
	warned := false
	err := db.Retry(ctx, func(ctx context.Context) error {
		err := setFunc(ctx)
		if db.IsTransient(err) && !warned {
			warned = true
			warnFunc(err)
		}
		return err
	})
	switch {
	case ctx.Err() != nil: // the worker was asked to stop before there was anything to do
		return nil
	case db.IsForbidden(err):
		return fmt.Errorf("%w: %s", err, advice)
	}
	return err
}

// setLimits declares the settings of these queues, and the weights of their partition keys.
func (a *app) setLimits(ctx context.Context, log *slog.Logger, client *jobq.Client, file *config.File, limited []string) error {
	declared := make([]operator.QueueDeclaration, len(limited))
	for i, name := range limited {
		declared[i] = operator.QueueDeclaration{Queue: name, Change: file.Queues[name].Change, KeyWeights: file.Queues[name].KeyWeights}
	}
	changed, err := a.operator(client).DeclareQueues(ctx, declared...)
	for _, set := range changed {
		if set.Key != "" {
			log.Info("weight of the config file is set", "queue", set.Queue, "partition_key", set.Key, "weight", set.Weight, "audit_id", set.AuditID)
		} else {
			log.Info("limits of the config file are set", "queue", set.Queue, "audit_id", set.AuditID)
		}
	}
	if of := (*operator.QueueDeclarationError)(nil); errors.As(err, &of) {
		return fmt.Errorf("%s: %w", file.Path, file.QueueError(of.Queue, err))
	}
	return err
}
