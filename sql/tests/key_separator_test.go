package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// Workers hear of a separator of keys that is set, changed, taken away or put back by an undo, and of nothing where it stays as
// it is. What cannot be one is refused in words, and changes nothing.
func TestKeySeparatorSettings(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	hear := q.listener(db.TopicSettings)
	text := func(sql string) (text string) {
		require.NoError(t, q.pool.QueryRow(context.Background(), sql).Scan(&text))
		return text
	}
	stored := func() string { return text("select coalesce(max(key_separator), 'none') from jobq.queue") }
	said := []string{"settings default"}
	set := func(change string) []string { return hear(func() { q.set(change) }) }
	require.Equal(t, said, set(`{"key_separator": "/"}`))
	require.Equal(t, "/", stored())
	require.Empty(t, set(`{"key_separator": "/"}`))
	require.Empty(t, set(`{"lease": "2 minutes"}`), "claims stay the same")
	require.Equal(t, said, set(`{"key_separator": "::"}`))
	require.Equal(t, `{"key_separator": "::"} {"key_separator": "/"}`, text("select change::text || ' ' || replaced::text from jobq.audit order by id desc limit 1"))
	last := q.number("select max(id) from jobq.audit")
	require.Equal(t, said, hear(func() {
		require.Equal(t, 1, q.number("select count(*) from jobq.undo('test', $1) u where u.problem is null", last))
	}))
	require.Equal(t, "/", stored())
	for _, wrong := range []string{`""`, `"123456789"`} {
		require.ErrorContains(t, q.refusal("select jobq.act_queue_set('test', 'default', $1::jsonb)", `{"key_separator": `+wrong+`}`), "key_separator must be 1 to 8 characters")
	}
	require.Equal(t, "/", stored())
	require.Equal(t, said, set(`{"key_separator": null}`))
	require.Equal(t, "none", stored())
}
