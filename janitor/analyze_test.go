package janitor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/janitor"
)

// The history as a whole gets the statistics that autovacuum never makes, once,
// however often the janitor looks.
func TestAnalyzesTheHistory(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.finished(2_000, "1 hour", false)
	f.exec("create sequence looks")
	f.exec("alter function jobq.history_analyze(interval) rename to history_analyze_real")
	f.exec(`create function jobq.history_analyze(every interval) returns boolean language plpgsql as $$ begin
		if jobq.history_analyze_real(every) then return true; end if;
		perform nextval('public.looks');
		return false; end $$`)
	f.start(janitor.Config{}, janitor.ChoreTimes(0, 0, 10*time.Millisecond))
	f.eventually("select count(*) from pg_stats where schemaname = 'jobq' and tablename = 'run' and attname = 'lease_id' and inherited", 1)
	looks := func(more int) {
		before := f.number("select last_value from looks")
		require.Eventually(t, func() bool { return f.number("select last_value from looks") > before+more }, patience, time.Millisecond)
	}
	looks(5) // PostgreSQL 14 tells the time of an analyze some time later
	times := strings.Count(f.log.String(), "analyzed the history")
	require.NotZero(t, times)
	looks(20)
	require.Equal(t, times, strings.Count(f.log.String(), "analyzed the history"))
}
