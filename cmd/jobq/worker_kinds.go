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
	"github.com/jobq-dev/jobq/operator"
)

// setKindsAtStart makes the settings of kinds what the config file says, when a worker starts: see setLimitsAtStart.
func (a *app) setKindsAtStart(ctx context.Context, log *slog.Logger, client *jobq.Client, file *config.File) error {
	var declared []operator.KindDeclaration
	for _, name := range slices.Sorted(maps.Keys(file.Kinds)) {
		if change := file.Kinds[name].Settings.Change; change != (operator.KindChange{}) {
			declared = append(declared, operator.KindDeclaration{Kind: name, Change: change})
		}
	}
	if len(declared) == 0 {
		return nil
	}
	warn := func(err error) {
		log.Warn("settings of kinds of the config file cannot be set yet, trying on", "error", err)
	}
	return setAtStart(ctx, warn,
		"set it with \"jobq kinds set\", or leave settings out of the workers' file", func(ctx context.Context) error {
			changed, err := a.operator(client).DeclareKinds(ctx, declared...)
			for _, set := range changed {
				log.Info("settings of a kind of the config file are set", "kind", set.Kind, "audit_id", set.AuditID)
			}
			if of := (*operator.KindDeclarationError)(nil); errors.As(err, &of) {
				return fmt.Errorf("%s: %w", file.Path, file.KindError(of.Kind, err))
			}
			return err
		})
}
