package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
)

// removeTimeout bounds the removal of the schema, which happens also when the
// bench was interrupted.
const removeTimeout = time.Minute

// checkWritable refuses a session in which nothing can be made. Elsewhere that
// counts as a failover, which passes: a bench would wait for it.
func (b *bench) checkWritable(ctx context.Context) error {
	var readOnly, standby bool
	err := b.pool.QueryRow(ctx, "select current_setting('transaction_read_only')::boolean, pg_is_in_recovery()").Scan(&readOnly, &standby)
	switch {
	case err != nil:
		return err
	case standby:
		return errors.New("the server is a standby, and a bench makes tables: run it on the primary")
	case readOnly:
		return errors.New("the session is read-only, by the context's read_only or the setting default_transaction_read_only, and a bench makes tables")
	}
	return nil
}

// sayLeftovers names the schemas of benches that run elsewhere, or that were
// killed: it cannot tell which.
func (b *bench) sayLeftovers(ctx context.Context) error {
	rows, err := b.pool.Query(ctx, "select n.nspname::text from pg_namespace n where starts_with(n.nspname, $1) order by 1", SchemaPrefix)
	if err != nil {
		return err
	}
	schemas, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, schema := range schemas {
		b.say("schema %[1]s is there: another bench runs, or one was killed; drop schema %[1]s cascade removes it", schema)
	}
	return err
}

// remove drops the schema if it was made, also when the context has ended.
// Statements that were interrupted may still be ending in the server, and get in
// its way.
func (b *bench) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	err := db.Retry(ctx, func(ctx context.Context) error {
		var made bool
		if err := b.pool.QueryRow(ctx, "select to_regnamespace($1) is not null", b.schema).Scan(&made); err != nil || !made {
			return err
		}
		_, err := b.pool.Exec(ctx, "drop schema if exists "+b.schema+" cascade")
		return err
	})
	if err != nil {
		return fmt.Errorf("remove schema %s, which is left behind: %w", b.schema, err)
	}
	return nil
}

// reset empties the tables, for the next case.
func (b *bench) reset(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, "truncate "+b.tables("pending", "run", "lease", "past_lease", "progress", "attempt", "stat_delta", "stat"))
	return err
}

// settle does what autovacuum would after many rows were written, so that it
// does not get into one case and not into another, and plans are made with
// the tables as they are.
func (b *bench) settle(ctx context.Context) error {
	b.say("vacuuming")
	_, err := b.pool.Exec(ctx, "vacuum (analyze) "+b.tables("pending", "run", "lease", "past_lease", "attempt"))
	return err
}

// tables are names for SQL, in the bench's schema.
func (b *bench) tables(names ...string) string {
	tables := make([]string, len(names))
	for i, name := range names {
		tables[i] = b.schema + "." + name
	}
	return strings.Join(tables, ", ")
}

// newSchemaName is a name that no other bench has.
func newSchemaName() (string, error) {
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", err
	}
	return SchemaPrefix + hex.EncodeToString(random[:]), nil
}
