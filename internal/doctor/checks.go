package doctor

import "context"

// check is one check, with the name under which people find it in docs/doctor.md.
type check struct {
	name string
	// apart is a check that makes connections of its own and needs no transaction.
	apart bool
	run   func(ctx context.Context, p *patient) ([]Finding, error)
}

// checks are all checks, in the order in which they are done: later ones use what
// pooler has found out.
func checks() []check {
	return []check{
		{"pooler", true, checkPooler},
		{"notifications", true, checkNotifications},
		{"clock", false, checkClock},
		{"settings", false, checkSettings},
		{"connections", false, checkConnections},
		{"notify-queue", false, checkNotifyQueue},
		{"transactions", false, checkTransactions},
		{"prepared-transactions", false, checkPreparedTransactions},
		{"replication-slots", false, checkReplicationSlots},
		{"schema", false, checkSchema},
		{"indexes", false, checkIndexes},
		{"triggers", false, checkTriggers},
		{"privileges", false, checkPrivileges},
		{"replica-identity", false, checkReplicaIdentity},
		{"row-security", false, checkRowSecurity},
		{"search-path", false, checkSearchPath},
		{"defaults", false, checkDefaults},
		{"autovacuum", false, checkAutovacuum},
		{"dead-rows", false, checkDeadRows},
		{"partitions", false, checkPartitions},
		{"export", false, checkExport},
		{"default-partitions", false, checkDefaultPartitions},
		{"janitor", false, checkJanitor},
		{"janitor-errors", false, checkJanitorErrors},
		{"queues", false, checkQueues},
		{"kinds", false, checkKinds},
		{"waiting", false, checkWaiting},
		{"paused", false, checkPaused},
		{"held-hosts", false, checkHeld},
		{"troubles", false, checkTroubles},
		{"lost-leases", false, checkLostLeases},
		{"versions", false, checkVersions},
	}
}
