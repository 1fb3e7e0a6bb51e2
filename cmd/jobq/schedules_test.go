package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
)

// The commands for schedules, as people use them and as programs read them.
func TestScheduleCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append([]string{"schedules", "--database-url", url}, args...)...)
		require.Equal(t, want, code, out+stderr)
		return out + stderr
	}
	add := []string{"add", "report", "--cron", "0 9 * * mon", "--tz", "Europe/Berlin", "--kind", "report", "--args", `{"week": 1}`, "--tag", "a", "--tag", "b", "--partition-key", "customer-17"}
	require.Regexp(t, `^schedule report is set; take it back with: jobq undo \d+\nnext: Mon \d{4}-\d\d-\d\d 09:00:00 CES?T, in \S+\n$`, command(exitOK, add...))
	require.Regexp(t, `^schedule report is already set\n`, command(exitOK, add...))
	require.Equal(t, "schedule tick is set; take it back with: jobq undo 2\n", regexp.MustCompile("next: .*\n").ReplaceAllString(command(exitOK, "add", "tick", "--every", "1s", "--kind", "tick"), ""))

	var listed []monitor.Schedule
	require.NoError(t, json.Unmarshal([]byte(command(exitOK, "list", "--json")), &listed))
	require.Len(t, listed, 2)
	require.Equal(t, []string{"a", "b"}, listed[0].Tags)
	require.Equal(t, "customer-17", listed[0].PartitionKey)
	require.Equal(t, time.Second, listed[1].Every)
	table := command(exitOK, "list")
	require.Regexp(t, `report +0 9 \* \* mon Europe/Berlin +report +default +customer-17 +Mon .* 09:00:00 CES?T, in \S+ +ok\n`, table)
	require.Regexp(t, `tick +every 1s +tick +default `, table)

	next := strings.Split(strings.TrimSpace(command(exitOK, "next", "report", "--count", "3")), "\n")
	require.Len(t, next, 3)
	require.Regexp(t, `^Mon .* 09:00:00 CES?T, in `, next[2])
	var ticks []time.Time
	require.NoError(t, json.Unmarshal([]byte(command(exitOK, "next", "report", "--json")), &ticks))
	require.Len(t, ticks, 5)

	require.Regexp(t, `^schedule report is paused; take it back with: jobq undo \d+\n$`, command(exitOK, "pause", "report", "--reason", "holidays"))
	require.JSONEq(t, `{"schedule": "report", "changed": false}`, command(exitOK, "pause", "report", "--json"))
	require.Contains(t, command(exitOK, "next", "report"), "note: it is paused")
	require.Contains(t, command(exitOK, append(add, "--priority", "3")...), "it is paused: jobq schedules resume report")
	id := strings.TrimSpace(command(exitOK, "run", "report"))
	require.Equal(t, "report of customer-17", query[string](t, pool, "select kind || ' of ' || partition_key from jobq.job where id::text = $1", id))

	var shown scheduleShown
	require.NoError(t, json.Unmarshal([]byte(command(exitOK, "show", "report", "--json")), &shown))
	require.Equal(t, jobq.CatchUpLatest, shown.CatchUp)
	require.Equal(t, id, json.Number(strings.TrimSpace(id)).String())
	page := command(exitOK, "show", "report")
	for _, pattern := range []string{`when +0 9 \* \* mon Europe/Berlin`, "next +none", "pause reason +holidays", `args +\{"week": 1\}`, "tags +a, b", "partition key +customer-17", "priority +3", "catch up +latest, within 1d"} {
		require.Regexp(t, pattern, page)
	}
	require.Regexp(t, `^schedule report is running; take it back with: jobq undo \d+\n$`, command(exitOK, "resume", "report"))
	require.Equal(t, "schedule report is already running\n", command(exitOK, "resume", "report"))
	query[int64](t, pool, "with t as (insert into jobq.schedule_tick values ('report', '2026-11-23 08:00:00+00', $1::text::bigint), ('report', '2026-11-30 08:00:00+00', null) returning 1) select count(*) from t", id)
	require.Regexp(t, `Mon 2026-11-30 09:00:00 CET +none +left out: the job before was unfinished\nMon 2026-11-23 09:00:00 CET +`+id+" +available\n", command(exitOK, "show", "report"))
	removed := command(exitOK, "rm", "report")
	require.Regexp(t, `^schedule report is removed; take it back with: jobq undo \d+\n$`, removed)
	undo := func() { // what the line says
		_, stderr, code := invoke(t, "", append(strings.Fields(removed[strings.Index(removed, "undo"):]), "--database-url", url)...)
		require.Zero(t, code, stderr)
	}
	undo()
	require.Regexp(t, `tags +a, b\n`, command(exitOK, "show", "report"))
	var gone changed
	require.NoError(t, json.Unmarshal([]byte(command(exitOK, "rm", "report", "--json")), &gone))
	require.Positive(t, gone.AuditID)

	for _, args := range []string{"show", "next", "pause", "resume", "run", "rm"} {
		require.Contains(t, command(exitNotFound, args, "tock"), `no schedule "tock"; did you mean tick?`, args)
	}
	query[int64](t, pool, "with s as (update jobq.schedule set error = 'no table', error_at = now(), failures = 3 returning 1) select count(*) from s")
	require.Contains(t, command(exitOK, "list"), "fails: no table")
	require.Regexp(t, `error +no table \(.*, 3 failures in a row\)`, command(exitOK, "show", "tick"))
}

// What is wrong with a schedule is said in one line that names it.
func TestScheduleRefusals(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	large := filepath.Join(t.TempDir(), "args.json")
	require.NoError(t, os.WriteFile(large, []byte(`"`+strings.Repeat("x", 1<<20)+`"`), 0o600))
	for want, args := range map[string][]string{
		"--kind is missing":                                   {"--every", "1s"},
		"either cron or every must be given":                  {"--kind", "k"},
		"cron and every must not be given both":               {"--kind", "k", "--every", "1s", "--cron", "@daily"},
		"never fires: no month that it names has such a day":  {"--kind", "k", "--cron", "0 0 31 2,4 *"},
		`minute "61": values are 0 to 59`:                     {"--kind", "k", "--cron", "61 * * * *"},
		`time zone "Europe/Bonn": unknown`:                    {"--kind", "k", "--cron", "@daily", "--tz", "Europe/Bonn"},
		"time_zone is for cron":                               {"--kind", "k", "--every", "1s", "--tz", "Europe/Berlin"},
		"must be whole seconds, from 1s to 366d":              {"--kind", "k", "--every", "1500ms"},
		"args are not JSON: {":                                {"--kind", "k", "--every", "1s", "--args", "{"},
		"args must be at most 1048576 bytes as stored, not":   {"--kind", "k", "--every", "1s", "--args", "@" + large},
		"metadata must be a JSON object, not number":          {"--kind", "k", "--every", "1s", "--metadata", "7"},
		"catch_up must be none, latest or all, not sometimes": {"--kind", "k", "--every", "1s", "--catch-up", "sometimes"},
		"catch_up_max must be 1 to 1000, not 1001":            {"--kind", "k", "--every", "1s", "--catch-up-max", "1001"},
		"partition_key must be 1 to 255 characters, not 256":  {"--kind", "k", "--every", "1s", "--partition-key", strings.Repeat("x", 256)},
		"kind must be valid UTF-8 without NUL bytes":          {"--kind", "a\x00b", "--every", "1s"},
		"--every must be more than 0":                         {"--kind", "k", "--every", "0"},
	} {
		out, stderr, code := invoke(t, "", append([]string{"schedules", "add", "name", "--database-url", url}, args...)...)
		require.Equal(t, exitUsage, code, want)
		require.Empty(t, out)
		require.Contains(t, stderr, want)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}
