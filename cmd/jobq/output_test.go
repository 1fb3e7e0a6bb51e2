package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// wide are texts whose cells are neither their bytes nor their characters: wide ones, combining marks, and emoji that
// a joiner makes one.
var wide = []string{"日本語", "u\u0308ber", "👩\u200d👩\u200d👧", "🇩🇪", "plain"}

// A column of a table begins at the same cell in each row, whatever is in the cells before it.
func TestTableByCells(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	table := newTable(&out, "NAME", "END")
	for _, name := range wide {
		table.row(name, "|")
	}
	require.NoError(t, table.flush())
	require.Equal(t, "NAME    END", strings.Split(out.String(), "\n")[0])
	requireAligned(t, out.String(), "|", len(wide))
	require.Equal(t, 59, ansi.StringWidth(cut(strings.Repeat("日", 100))), "a character of two cells has no half")
	require.Equal(t, strings.Repeat("e", 60), cut(strings.Repeat("e", 60)))
}

// requireAligned checks that a mark is in so many lines, at the same cell in each.
func requireAligned(t *testing.T, text, mark string, count int) {
	t.Helper()
	at, found := -1, 0
	for line := range strings.Lines(text) {
		before, _, has := strings.Cut(line, mark)
		if !has {
			continue
		}
		found++
		if at < 0 {
			at = ansi.StringWidth(before)
		}
		require.Equal(t, at, ansi.StringWidth(before), text)
	}
	require.Equal(t, count, found, text)
}

// The tables of jobq's commands are such tables.
func TestTablesOfCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	for _, name := range wide {
		query[int64](t, pool, "select jobq.enqueue($1, queue => $1, max_attempts => 77)", name)
		query[int64](t, pool, "select jobq.act_queue_set('ann', $1, '{\"max_running\": 77}')", name)
	}
	out, stderr, code := invoke(t, "", "list", "--database-url", url)
	require.Zero(t, code, stderr)
	requireAligned(t, out, "0/77", len(wide))
	out, stderr, code = invoke(t, "", "queues", "list", "--database-url", url)
	require.Zero(t, code, stderr)
	requireAligned(t, out, "limit=77", len(wide))
	for line := range strings.Lines(out) { // of the longest name, and two spaces
		require.Equal(t, 8, ansi.StringWidth(line[:strings.IndexAny(line, "A1")]), out)
	}
}
