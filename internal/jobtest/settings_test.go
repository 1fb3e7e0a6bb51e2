package jobtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/doctor"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
)

// settingsLeft are settings that the matrix leaves alone, and why.
var settingsLeft = map[string]string{
	"^(log_|debug_print|trace_|backtrace_|client_min_messages|track_io|track_wal|compute_query_id)":                                                     "they only say more, or less, in logs",
	"^(wal_consistency_checking|zero_damaged_pages|ignore_checksum_failure|allow_|jit_dump|debug_discard)":                                              "for developers of PostgreSQL",
	"^(default_table_access_method|default_tablespace|temp_tablespaces|.*_preload_libraries|dynamic_library_path|extension_destdir|restrict_nonsystem)": "they name what must be there",
	"^(default_text_search_config|lc_|application_name$|tcp_|default_toast_compression|wal_compression|xml)":                                            "nothing here depends on them, and not every server has other values",
	"^(transaction_|seed|role$|session_authorization|default_transaction_read_only)":                                                                    "of a transaction; and read only means to stop all writes",
	"^session_replication_role$": "it switches off triggers: doctor names it",
	"^exit_on_error$":            "it ends each session at its first error",
	"^track_(counts|activities)": "doctor names track_counts; without activities nobody sees who holds a lock",
	"^temp_file_limit$":          "it refuses to sort",
}

// oddSettings are odd values of settings that are text, or whose lowest or highest value would be no test.
var oddSettings = map[string][]string{
	"search_path":                         {"pg_temp, public", "public"},
	"client_encoding":                     {"LATIN1", "SJIS"},
	"DateStyle":                           {"SQL, DMY", "German"},
	"TimeZone":                            {"Australia/Lord_Howe", "America/St_Johns"},
	"timezone_abbreviations":              {"India", "Australia"},
	"statement_timeout":                   {"1000", "1000"},
	"lock_timeout":                        {"1", "1"},
	"idle_in_transaction_session_timeout": {"1", "1"},
	"idle_session_timeout":                {"1000", "1000"},
	"transaction_timeout":                 {"1000", "1000"},
	"max_stack_depth":                     {"500", "500"},
	"deadlock_timeout":                    {"1", "1000"},
	"IntervalStyle":                       {"sql_standard", "iso_8601"},
}

// setting is a setting that a database may have, at two odd values.
type setting struct {
	name string
	odd  [2]string
}

// readSettings are all settings that a database or a role may have, but for those that are left alone.
func readSettings(t *testing.T, pool *pgxpool.Pool) (settings []setting) {
	t.Helper()
	type row struct {
		Name, Type, Boot, Min, Max string
		Values                     []string
	}
	rows, err := pool.Query(context.Background(), `select name, vartype, coalesce(boot_val, ''), coalesce(min_val, ''), coalesce(max_val, ''), coalesce(enumvals, '{}')
		from pg_settings where context in ('user', 'superuser') order by name`)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	require.NoError(t, err)
	left := func(name string) bool {
		for pattern := range settingsLeft {
			if regexp.MustCompile(pattern).MatchString(name) {
				return true
			}
		}
		return false
	}
	for _, r := range all {
		odd, listed := oddSettings[r.Name]
		switch {
		case left(r.Name):
		case listed:
			settings = append(settings, setting{r.Name, [2]string{odd[0], odd[1]}})
		case r.Type == "bool":
			flipped := map[string]string{"on": "off", "off": "on"}[r.Boot]
			settings = append(settings, setting{r.Name, [2]string{flipped, flipped}})
		case r.Type == "enum":
			others := slices.DeleteFunc(r.Values, func(value string) bool { return value == r.Boot })
			settings = append(settings, setting{r.Name, [2]string{others[0], others[len(others)-1]}})
		case r.Type == "integer" || r.Type == "real":
			settings = append(settings, setting{r.Name, [2]string{r.Min, r.Max}})
		default:
			t.Errorf("setting %s is text: give it an odd value, or say why not", r.Name)
		}
	}
	require.Greater(t, len(settings), 80)
	return settings
}

// setAll has all sessions of a database begin with these settings.
func setAll(t *testing.T, url string, settings []setting, which int) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	conn, err := pgx.ConnectConfig(context.Background(), config)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	var script strings.Builder
	database := pgx.Identifier{config.Database}.Sanitize()
	fmt.Fprintf(&script, "alter database %s reset all;", database)
	for _, s := range settings {
		value := "'" + s.odd[which] + "'"
		if s.name == "search_path" {
			value = s.odd[which]
		}
		fmt.Fprintf(&script, "alter database %s set %s = %s;", database, s.name, value)
	}
	_, err = conn.Exec(context.Background(), script.String(), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
}

// useAll migrates a database, runs a job of every feature, and has it examined.
func useAll(ctx context.Context, t *testing.T, url string, mode pgx.QueryExecMode) error {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	db.PinPool(config) // as the commands do with theirs
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	defer pool.Close()
	if _, err := migrate.Up(ctx, pool, &migrate.Config{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := runFeatures(ctx, pool); err != nil {
		return err
	}
	report, err := doctor.Run(ctx, doctor.Config{Pool: pool})
	if err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	for _, f := range report.Findings {
		if strings.Contains(f.Problem, "could not be done") || f.Check == "schema" {
			return fmt.Errorf("doctor: %+v", f)
		}
	}
	return nil
}

// Whatever settings a database or a role has, jobq works: all of them are at odd values at once, in each way in which pgx sends statements.
// When that does not work, the test halves the settings until it knows which one it is.
func TestSettingsOfTheDatabase(t *testing.T) {
	t.Parallel()
	settings := readSettings(t, pgtest.Connect(t, pgtest.EmptyURL(t)))
	for i, mode := range queryModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			which := i % 2
			try := func(settings []setting) error {
				url := pgtest.EmptyURL(t)
				setAll(t, url, settings, which)
				defer setAll(t, url, nil, which)
				return useAll(context.Background(), t, url, mode)
			}
			suspects, err := settings, try(settings)
			if err == nil {
				return
			}
			t.Logf("with all settings: %v", err)
			for len(suspects) > 1 {
				half := len(suspects) / 2
				if first := try(suspects[:half]); first != nil {
					suspects, err = suspects[:half], first
				} else if second := try(suspects[half:]); second != nil {
					suspects, err = suspects[half:], second
				} else {
					break
				}
			}
			t.Errorf("%v: %v", suspects, err)
		})
	}
}
