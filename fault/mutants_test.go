package main

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/postgres"
	"github.com/jobq-dev/jobq/sql/schema"
)

// Every mutant of jobq's functions finds what it changes: after a function was moved or renamed,
// this says so at once, and not a run of all scenarios.
func TestFunctionChangesApply(t *testing.T) {
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Config{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "create schema jobq;"+schema.Initial()); err != nil {
		t.Fatal(err)
	}
	var tried []string
	for _, s := range scenarios() {
		tried = append(tried, s.mutants...)
	}
	for mutant := range functionChanges {
		if !slices.Contains(tried, mutant) {
			t.Errorf("no scenario has the mutant %s", mutant)
		}
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := changeFunctions(t.Context(), conn, mutant); err != nil {
			t.Error(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
