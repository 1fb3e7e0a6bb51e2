package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
)

func checkAutovacuum(ctx context.Context, p *patient) (findings []Finding, err error) {
	var on bool
	err = p.tx.QueryRow(ctx, "select current_setting('autovacuum')::boolean and current_setting('track_counts')::boolean").Scan(&on)
	if err != nil {
		return nil, err
	}
	if !on {
		findings = append(findings, Finding{
			Severity: Critical, Problem: "autovacuum is off on this server: what jobs leave behind stays, and every claim becomes slower",
			Advice: "set autovacuum = on and track_counts = on in postgresql.conf and reload",
		})
	}
	tables, err := p.names(ctx, `
		select c.relname::text from pg_class c
		  where c.relnamespace = `+inSchema+` and c.relkind = 'r'
		    and exists (select from pg_options_to_table(c.reloptions) o where case o.option_name when 'autovacuum_enabled' then not o.option_value::boolean end)
		  order by 1 limit 100`, p.schema.Name())
	if len(tables) > 0 {
		findings = append(findings, Finding{
			Severity: Warning, Problem: "autovacuum is off for " + nameSome(tables),
			Advice: "alter table TABLE reset (autovacuum_enabled)",
		})
	}
	return findings, err
}

// checkDeadRows finds tables in which autovacuum does not keep up.
func checkDeadRows(ctx context.Context, p *patient) (findings []Finding, err error) {
	type table struct {
		Name       string
		Dead, Live int64
		MiB        float64 // without the indexes
		Vacuumed   *time.Time
	}
	rows, err := p.tx.Query(ctx, `
		select s.relname::text, s.n_dead_tup, s.n_live_tup, coalesce(pg_table_size(s.relid), 0) / 1048576.0::float8, greatest(s.last_autovacuum, s.last_vacuum)
		  from pg_stat_user_tables s
		  where s.schemaname = $1 and s.n_dead_tup > $2 and s.n_dead_tup > s.n_live_tup
		  order by s.n_dead_tup desc
		  limit 10`, p.schema.Name(), p.limits.DeadRows)
	if err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	for _, t := range tables {
		vacuumed := "it has never been vacuumed"
		if t.Vacuumed != nil {
			vacuumed = "it was last vacuumed at " + t.Vacuumed.UTC().Format(time.RFC3339)
		}
		findings = append(findings, Finding{
			Severity: Warning, Problem: fmt.Sprintf("table %s has %d dead rows and %d live ones: of its %.1f MiB, the dead ones may have %.1f; %s",
				t.Name, t.Dead, t.Live, t.MiB, t.MiB*float64(t.Dead)/float64(t.Dead+t.Live), vacuumed),
			Advice: fmt.Sprintf("see what transactions, prepared-transactions and replication-slots say here; then: vacuum %s.%s; raise autovacuum_max_workers or autovacuum_vacuum_cost_limit if it comes again",
				p.schema.Name(), t.Name),
		})
	}
	return findings, err
}

// overdueMargin is how many days after its retention a day of the history may still
// be there: retention goes by whole days, and a day waits for the last of its jobs.
const overdueMargin = 3

// exportMargin is how many days after its retention a day may wait for its export.
const exportMargin = 1

// checkPartitions looks whether the days of the history are made before they are
// needed, and dropped when they are not needed any more.
func checkPartitions(ctx context.Context, p *patient) (findings []Finding, err error) {
	missing, err := p.names(ctx, `
		select w.name
		  from unnest(array['run', 'past_lease', 'attempt']) as parent(name)
		  cross join generate_series(0, 1) as ahead(days)
		  cross join lateral (select parent.name || '_' || to_char((clock_timestamp() at time zone 'UTC')::date + ahead.days, 'YYYYMMDD') as name) w
		  where not exists (select from pg_class c join pg_inherits i on i.inhrelid = c.oid where c.relnamespace = `+inSchema+` and c.relname = w.name)
		  order by ahead.days, 1`, p.schema.Name())
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		findings = append(findings, Finding{
			Severity: Warning, Problem: "days of the history are not made, for today or tomorrow (UTC): " + nameSome(missing) + "; their rows go to the default partition",
			Advice: "run a janitor (every `jobq worker` has one inside), and see `jobq janitor events` for why it cannot make them",
		})
	}
	overdue, err := p.overdueDays(ctx)
	if len(overdue) > 0 {
		findings = append(findings, Finding{
			Severity: Warning, Problem: fmt.Sprintf("days of the history are %d days past their retention and more: %s", overdueMargin, nameSome(overdue)),
			Advice: "see whether a janitor runs, and `jobq janitor events` for why it cannot drop them; a reader such as pg_dump, or a job that runs for days, holds them",
		})
	}
	return findings, err
}

// overdueDays are the days of run and attempt that should be gone, and those that stay for the jobs that are kept for
// longest, but from which others should have gone (jobq.sweep). Not a day of which a lease is held: its job runs still.
func (p *patient) overdueDays(ctx context.Context) ([]string, error) {
	return p.names(ctx, p.schema.SQL(`
		select d.name
		  from (
		    select c.relname::text as name, to_date(right(c.relname, 8), 'YYYYMMDD') as day
		      from pg_class c
		      join pg_inherits i on i.inhrelid = c.oid
		      where c.relnamespace = `+inSchema+` and c.relkind = 'r' and c.relname ~ '^(run|attempt)_[0-9]{8}$'
		  ) d
		    cross join jobq.retention_span() t
		  where (d.day < ((clock_timestamp() - t.longest) at time zone 'UTC')::date - $2::integer
		      or d.name like 'run%' and d.day < ((clock_timestamp() - t.shortest) at time zone 'UTC')::date - $2::integer
		        and not exists (select from jobq.sweep w where w.day = d.day and w.next_block is null and w.next_lease is null
		          and coalesce(w.again_at > clock_timestamp() - $2::integer * interval '1 day', true)))
		    and not exists (select from jobq.setting s where s.keep_until_exported and d.day >= s.exported_before)
		    and not exists (select from jobq.lease l
		      where l.id >= jobq.lease_day(d.day) and l.id < jobq.lease_day(d.day + 1))
		  order by d.day, 1
		  limit 100`), p.schema.Name(), overdueMargin)
}

// checkExport finds days that are past their retention and stay because they were not exported.
func checkExport(ctx context.Context, p *patient) ([]Finding, error) {
	days, err := p.names(ctx, p.schema.SQL(`
		select jobq.export_first()::text
		  from jobq.setting s
		  cross join jobq.retention_span() t
		  where s.keep_until_exported
		    and jobq.export_first() < ((clock_timestamp() - t.shortest) at time zone 'UTC')::date - $1::integer`), exportMargin)
	if err != nil || len(days) == 0 {
		return nil, err
	}
	return []Finding{{
		Severity: Warning, Problem: fmt.Sprintf("the history since %s is past its retention and was not exported: it is kept, and grows", days[0]),
		Advice: "run `jobq export --dir DIR`, every day; it says what keeps a day from being exported, such as a job that still runs",
	}}, nil
}

func checkDefaultPartitions(ctx context.Context, p *patient) ([]Finding, error) {
	used, err := p.queries.DoctorDefaults(ctx)
	if err != nil || len(used) == 0 {
		return nil, err
	}
	return []Finding{{
		Severity: Warning, Problem: "the default partitions have rows: " + strings.Join(used, ", ") + "; such a day is not made any more, and retention deletes its rows one by one",
		Advice: "keep a janitor running, so that days are made ahead; these rows go with the retention",
	}}, nil
}

func seconds(count float64) time.Duration { return db.Seconds(count).Round(time.Second) }
