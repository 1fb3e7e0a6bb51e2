package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
)

// checkClock compares this machine's clock with the server's. The answer was made at
// some moment of the round trip, which therefore is no skew.
func checkClock(ctx context.Context, p *patient) ([]Finding, error) {
	before := p.now()
	var at time.Time
	if err := p.tx.QueryRow(ctx, "select clock_timestamp()").Scan(&at); err != nil {
		return nil, err
	}
	after := p.now()
	skew := max(before.Sub(at), at.Sub(after), 0)
	if skew <= p.limits.ClockSkew {
		return nil, nil
	}
	return []Finding{{
		Severity: Warning, Problem: fmt.Sprintf("the clocks of this machine and of the database server differ by %s", skew.Round(time.Second)),
		Advice: "run NTP (chrony, systemd-timesyncd) on both; leases go by the server's clock, but run_at and what people read come from both",
	}}, nil
}

// harmfulSettings are settings of the server that no queue should have.
var harmfulSettings = []struct {
	name, value string
	severity    Severity
	problem     string
}{
	{"fsync", "off", Critical, "a crash of the machine can destroy the whole database"},
	{"full_page_writes", "off", Critical, "a crash of the machine can leave pages that are half written"},
	{"synchronous_commit", "off", Warning, "a crash of the server loses the last commits, and so jobs that were accepted and ends that were reported"},
}

func checkSettings(ctx context.Context, p *patient) (findings []Finding, err error) {
	for _, harmful := range harmfulSettings {
		var value string
		if err := p.tx.QueryRow(ctx, "select current_setting($1)", harmful.name).Scan(&value); err != nil {
			return findings, err
		}
		if value == harmful.value {
			findings = append(findings, Finding{
				Severity: harmful.severity, Problem: fmt.Sprintf("%s is %s: %s", harmful.name, value, harmful.problem),
				Advice: fmt.Sprintf("set %s = on in postgresql.conf (or where the role or the database sets it) and reload", harmful.name),
			})
		}
	}
	return findings, nil
}

// connectionsCritical is the share of the connections from which on the next worker
// may find none.
const connectionsCritical = 0.95

// checkConnections also counts the sessions that this role may not look into, and what live workers may open.
func checkConnections(ctx context.Context, p *patient) (findings []Finding, err error) {
	var used, allowed int64
	err = p.tx.QueryRow(ctx, `select (select count(*) from pg_stat_activity a where a.backend_type = 'client backend' or a.backend_type is null and a.datid is not null),
		current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint`).Scan(&used, &allowed)
	if err != nil {
		return nil, err
	}
	const advice = "run fewer worker processes with more slots each, put a pooler between, or raise max_connections and restart the server"
	if share := float64(used) / float64(max(allowed, 1)); share > p.limits.ConnectionsShare {
		severity := Warning
		if share >= connectionsCritical {
			severity = Critical
		}
		findings = append(findings, Finding{Severity: severity, Problem: fmt.Sprintf("%d of %d connections are in use", used, allowed), Advice: advice})
	}
	may, err := p.queries.DoctorConnections(ctx, db.Interval(workerSilence))
	if err == nil && may.Connections > allowed {
		findings = append(findings, Finding{
			Severity: Note, Problem: fmt.Sprintf("%d live workers may open %d connections when they have much to do, and the server allows %d", may.Workers, may.Connections, allowed),
			Advice: advice,
		})
	}
	return findings, err
}

// notifyQueueCritical is the share of the queue of notifications from which on jobq
// will soon send none (jobq.notifications_full).
const notifyQueueCritical = 0.75

func checkNotifyQueue(ctx context.Context, p *patient) ([]Finding, error) {
	var share float64
	if err := p.tx.QueryRow(ctx, "select pg_notification_queue_usage()").Scan(&share); err != nil {
		return nil, err
	}
	if share <= p.limits.NotifyQueueShare {
		return nil, nil
	}
	severity := Warning
	if share >= notifyQueueCritical {
		severity = Critical
	}
	return []Finding{{
		Severity: severity, Problem: fmt.Sprintf("the server's queue of notifications is %.3g%% full; at 90%% jobq stops notifying, so that workers find jobs by polling; at 100%% what others notify fails", share*100),
		Advice: "end the session that has executed LISTEN and then stayed in a transaction: the server's log names it, and so does pg_stat_activity where state is 'idle in transaction'",
	}}, nil
}

// ageSeverity is how bad it is that something old keeps dead rows from being removed.
func (p *patient) ageSeverity(age time.Duration) Severity {
	if age >= 10*p.limits.TransactionAge {
		return Critical
	}
	return Warning
}

const holdsBack = "while it lasts, no vacuum removes what jobs have left behind, and every claim becomes slower"

// checkTransactions finds the sessions whose snapshot or transaction id is so old
// that dead rows of this database stay. Those of a vacuum hold back nothing.
func checkTransactions(ctx context.Context, p *patient) (findings []Finding, err error) {
	type session struct {
		PID                       int32
		Role, Application, Client string
		State                     string
		Seconds                   float64
	}
	rows, err := p.tx.Query(ctx, `
		select a.pid, coalesce(a.usename, '')::text, coalesce(a.application_name, ''), coalesce(host(a.client_addr), 'local'), coalesce(a.state, ''),
		    extract(epoch from clock_timestamp() - a.xact_start)::float8
		  from pg_stat_activity a
		  where a.datname = current_database() and a.pid <> pg_backend_pid() and (a.backend_xmin is not null or a.backend_xid is not null)
		    and a.backend_type not in ('autovacuum worker', 'walsender')
		    and a.xact_start < clock_timestamp() - $1::float8 * interval '1 s'
		  order by a.xact_start
		  limit 10`, p.limits.TransactionAge.Seconds())
	if err != nil {
		return nil, err
	}
	sessions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[session])
	if err != nil {
		return nil, err
	}
	for _, s := range sessions {
		age := time.Duration(s.Seconds * float64(time.Second))
		findings = append(findings, Finding{
			Severity: p.ageSeverity(age),
			Problem: fmt.Sprintf("session %d (role %s, application %q, %s, %s) has had a transaction open for %s: %s",
				s.PID, s.Role, s.Application, s.Client, s.State, age.Round(time.Second), holdsBack),
			Advice: fmt.Sprintf("end it where it comes from, or with: select pg_terminate_backend(%d); idle_in_transaction_session_timeout prevents it", s.PID),
		})
	}
	var hidden int64
	err = p.tx.QueryRow(ctx, `select count(*) from pg_stat_activity a
		where a.datname = current_database() and a.backend_type is null`).Scan(&hidden)
	if err == nil && hidden > 0 {
		err = notAllowed{fmt.Sprintf("the transactions of %d sessions of other roles cannot be seen: grant pg_read_all_stats to this role", hidden)}
	}
	return findings, err
}

func checkPreparedTransactions(ctx context.Context, p *patient) (findings []Finding, err error) {
	type prepared struct {
		GID, Owner string
		Seconds    float64
	}
	rows, err := p.tx.Query(ctx, `
		select x.gid, x.owner::text, extract(epoch from clock_timestamp() - x.prepared)::float8
		  from pg_prepared_xacts x
		  where x.database = current_database() and x.prepared < clock_timestamp() - $1::float8 * interval '1 s'
		  order by x.prepared
		  limit 10`, p.limits.TransactionAge.Seconds())
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[prepared])
	for _, x := range all {
		age := time.Duration(x.Seconds * float64(time.Second))
		findings = append(findings, Finding{
			Severity: p.ageSeverity(age),
			Problem:  fmt.Sprintf("transaction %q of role %s was prepared %s ago and has not ended: %s", x.GID, x.Owner, age.Round(time.Second), holdsBack),
			Advice:   "ask the transaction manager that prepared it; if nobody knows it any more: rollback prepared '" + x.GID + "'",
		})
	}
	return findings, err
}

// checkReplicationSlots finds slots that nobody uses and that keep dead rows or WAL, and
// slots in use, and standbys without one, that keep the dead rows of many transactions.
func checkReplicationSlots(ctx context.Context, p *patient) (findings []Finding, err error) {
	type slot struct {
		Name, Kind string
		Rows       bool
		Bytes      int64
	}
	rows, err := p.tx.Query(ctx, `
		select s.slot_name::text, s.slot_type::text, (s.xmin is not null or s.catalog_xmin is not null), coalesce(
		    case when pg_is_in_recovery() then 0 else pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) end, 0)::bigint
		  from pg_replication_slots s
		  where not s.active
		  order by s.slot_name
		  limit 100`)
	if err != nil {
		return nil, err
	}
	slots, err := pgx.CollectRows(rows, pgx.RowToStructByPos[slot])
	if err != nil {
		return nil, err
	}
	for _, s := range slots {
		if !s.Rows && s.Bytes <= p.limits.SlotBytes {
			continue
		}
		keeps := fmt.Sprintf("%d MiB of WAL", s.Bytes>>20)
		if s.Rows {
			keeps += " and dead rows"
		}
		severity := Warning
		if s.Bytes > 10*p.limits.SlotBytes {
			severity = Critical
		}
		findings = append(findings, Finding{
			Severity: severity, Problem: fmt.Sprintf("the %s replication slot %q is not in use and keeps %s", s.Kind, s.Name, keeps),
			Advice: fmt.Sprintf("start its consumer, or drop it: select pg_drop_replication_slot('%s'); max_slot_wal_keep_size bounds what it keeps", s.Name),
		})
	}
	held, err := p.heldByReplication(ctx)
	return append(findings, held...), err
}

// heldByReplication finds what keeps dead rows although it is in use. PostgreSQL counts that in
// transactions: the age in time is not known.
func (p *patient) heldByReplication(ctx context.Context) (findings []Finding, err error) {
	type holder struct {
		What    string
		Logical bool
		XIDs    int64
	}
	rows, err := p.tx.Query(ctx, `
		select 'the replication slot "' || s.slot_name || '"', s.slot_type = 'logical', greatest(age(s.xmin), age(s.catalog_xmin))::bigint as xids
		  from pg_replication_slots s
		  where s.active and greatest(age(s.xmin), age(s.catalog_xmin)) > $1
		union all
		select format('the standby %s (%s)', coalesce(nullif(a.application_name, ''), 'without a name'), coalesce(host(a.client_addr), 'local')), false, age(a.backend_xmin)
		  from pg_stat_activity a
		  where a.backend_type = 'walsender' and age(a.backend_xmin) > $1
		order by xids desc
		limit 10`, p.limits.XIDsHeld)
	if err != nil {
		return nil, err
	}
	holders, err := pgx.CollectRows(rows, pgx.RowToStructByPos[holder])
	for _, h := range holders {
		severity, keeps, advice := Warning, "dead rows", "end the oldest query on the standby, or bound such queries with statement_timeout there; or set hot_standby_feedback = off on it"
		if h.Logical {
			keeps, advice = "dead rows of the catalogs", "see why its consumer does not confirm what it has read"
		}
		if h.XIDs > 10*p.limits.XIDsHeld {
			severity = Critical
		}
		findings = append(findings, Finding{Severity: severity, Problem: fmt.Sprintf("%s is in use and keeps the %s of the last %d transactions", h.What, keeps, h.XIDs), Advice: advice})
	}
	return findings, err
}
