package db_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Errors of the same cause have the same pattern, whatever number, id, address or
// quoted text is in them; what says which error it is stays.
func TestErrorPattern(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	for pattern, errors := range map[string][]string{
		"user #: dial tcp #: connection refused": {"user 4711: dial tcp 10.0.0.7:5432: connection refused", "user 8: dial tcp 10.0.10.9:80: connection refused"},
		"dial [#]:#: timeout":                    {"dial [2001:db8::1]:5432: timeout", "dial [fe80:0:0:abcd::1]:80: timeout"},
		"job # is gone":                          {"job 550e8400-e29b-41d4-a716-446655440000 is gone", "job abcdefab-cdef-abcd-efab-cdefabcdefab is gone", "job 0xdeadBEEF1 is gone", "job 7 is gone", "job ch_3MmlLrLk0B15 is gone"},
		"can't open #: it doesn't exist":         {"can't open 'a b': it doesn't exist", `can't open "c": it doesn't exist`, "can't open `d e`: it doesn't exist"},
		"the users' job and the owners' key":     {"the users' job and the owners' key"},
		"mail to # bounced after #":              {"mail to ann.lee+x@example.co.uk bounced after 1m30.5s", "mail to b@c.org bounced after 45ms"},
		"at # it was late":                       {"at 2026-01-02T15:04:05.123Z it was late", "at 12:30 it was late"},
		"lease expired: worker web-# is silent":  {"lease expired: worker web-1-4711-0a1b2c3d is silent"},
		"exit code 1":                            {"exit code 1", "exit code 1\nat line 12"},
		"exit code 65":                           {"exit code 65"},
		"HTTP 503 from #":                        {"HTTP 503 from 'a'"},
		"pq: (SQLSTATE 40P01)":                   {"pq: (SQLSTATE 40P01)"},
		"std::bad_alloc: a decade of facades":    {"std::bad_alloc: a decade of facades"},
		"línea":                                  {"línea\r\nzwei"},
		"":                                       {"", "\nsecond"},
		strings.Repeat("ö", 60):                  {strings.Repeat("ö", 60), strings.Repeat("ö", 250)},
	} {
		for _, text := range errors {
			var got string
			require.NoError(t, pool.QueryRow(ctx, "select rtrim(jobq.error_pattern($1), E'\\r')", text).Scan(&got))
			require.Equal(t, pattern, got, text)
		}
	}
	var none string
	require.NoError(t, pool.QueryRow(ctx, "select jobq.error_pattern(null)").Scan(&none))
	require.Empty(t, none)
}
