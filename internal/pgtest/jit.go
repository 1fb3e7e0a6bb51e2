package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// RefuseJIT makes each statement fail that calls jobq.line_heads in a session that may compile statements. The lists of queues
// call it, and with a million jobs the planner expects them to be expensive enough.
func RefuseJIT(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(context.Background(), `
		create or replace function jobq.line_heads(of_queue text, lines_max integer)
			returns table (key text, priority smallint, "position" bigint, since timestamptz)
			language plpgsql stable rows 10
			as $$ begin
				if current_setting('jit')::boolean then
					raise exception 'the statement may be compiled';
				end if;
				return query select ''::text, 0::smallint, 1::bigint, now() - interval '1 day';
			end $$`)
	require.NoError(t, err)
}
