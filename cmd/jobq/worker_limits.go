package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/catalogue"
	"github.com/jobq-dev/jobq/internal/config"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/monitor"
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
	warned := false
	err := db.Retry(ctx, func(ctx context.Context) error {
		err := a.setLimits(ctx, log, client, file, limited)
		if db.IsTransient(err) && !warned {
			warned = true
			log.Warn("limits of the config file cannot be set yet, trying on", "error", err)
		}
		return err
	})
	switch {
	case ctx.Err() != nil: // the worker was asked to stop before there was anything to do
		return nil
	case db.IsForbidden(err):
		return fmt.Errorf("%w: set it with \"jobq queues set\", or leave limits out of the workers' file", err)
	}
	return err
}

// setLimits sets those of the queues that differ, one by one.
func (a *app) setLimits(ctx context.Context, log *slog.Logger, client *jobq.Client, file *config.File, limited []string) error {
	queues, err := monitor.New(client).Queues(ctx)
	if err != nil {
		return err
	}
	stored := make(map[string]monitor.QueueSettings, len(queues))
	for _, queue := range queues {
		stored[queue.Name] = queue.QueueSettings
	}
	for _, name := range limited {
		settings, known := stored[name]
		if !known {
			settings = catalogue.Defaults()
		}
		if err := a.setWeights(ctx, log, client, file, name); err != nil {
			return err
		}
		change := file.Queues[name].Change
		if catalogue.IsStored(change, &settings) {
			continue
		}
		id, err := a.operator(client).SetQueue(ctx, name, change)
		if err != nil {
			return fmt.Errorf("%s: %w", file.Path, file.QueueError(name, err))
		}
		log.Info("limits of the config file are set", "queue", name, "audit_id", id)
	}
	return nil
}

// setWeights sets those of the weights of a queue's partition keys that differ, one by one.
func (a *app) setWeights(ctx context.Context, log *slog.Logger, client *jobq.Client, file *config.File, name string) error {
	weights := file.Queues[name].KeyWeights
	if len(weights) == 0 {
		return nil
	}
	keys := slices.Sorted(maps.Keys(weights))
	stored, err := monitor.New(client).KeyWeights(ctx, name, keys)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if weights[key] == max(stored[key], 1) {
			continue
		}
		acted, err := a.operator(client).SetKeyWeight(ctx, name, key, weights[key])
		if err != nil {
			return fmt.Errorf("%s: %w", file.Path, file.QueueError(name, err))
		}
		log.Info("weight of the config file is set", "queue", name, "partition_key", key, "weight", weights[key], "audit_id", acted.AuditID)
	}
	return nil
}
