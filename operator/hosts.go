package operator

import (
	"context"
	"fmt"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// HeldHost is what came of holding a host, or releasing it.
type HeldHost struct {
	// Host is its name, as in monitor.Worker.Hostname.
	Host string `json:"host"`
	// AuditID is the action's entry in the audit, for Undo; 0 when the host was held, or not held, already.
	AuditID int64 `json:"audit_id,omitempty"`
	// Workers is how many workers are registered on the host now. If none is, the name may be misspelt.
	Workers int64 `json:"workers"`
}

// HoldHost makes all workers of a host claim nothing until ReleaseHost, also workers that start there later. What they run goes
// on; what they have claimed and not begun goes back, without an attempt. They hear of it at once, or where they cannot listen
// within ten seconds. The name must be equal to that of the workers, and a host that has none can be held too. The reason is for
// people, and may be empty.
func (o *Operator) HoldHost(ctx context.Context, host, reason string) (HeldHost, error) {
	return o.actOnHost(ctx, "hold", db.HostActParams{Actor: o.actor, Action: string(jobq.ActionHostHold), Host: host, Note: db.TextOrNull(reason)})
}

// ReleaseHost lets the workers of a host claim again, and wakes them.
func (o *Operator) ReleaseHost(ctx context.Context, host string) (HeldHost, error) {
	return o.actOnHost(ctx, "release", db.HostActParams{Actor: o.actor, Action: string(jobq.ActionHostRelease), Host: host})
}

func (o *Operator) actOnHost(ctx context.Context, verb string, params db.HostActParams) (HeldHost, error) {
	operation := fmt.Sprintf("%s host %q", verb, params.Host)
	if err := o.checkTexts(operation, argument{"host", params.Host}, argument{"reason", db.Text(params.Note)}); err != nil {
		return HeldHost{}, err
	}
	row, err := dberror.Retry(ctx, func() (db.HostActRow, error) { return o.queries.HostAct(ctx, params) })
	if err != nil {
		return HeldHost{}, dberror.Wrap(o.schema, operation, err)
	}
	return HeldHost{Host: params.Host, AuditID: row.Audit, Workers: row.Workers}, nil
}
