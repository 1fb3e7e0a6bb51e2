package operator_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// A text that PostgreSQL cannot store is refused by every call, and the error says
// which of the texts it is, also when it is the actor.
func TestTextsThatCannotBeStored(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	const nul = "a\x00b"
	calls := func(o *operator.Operator, text string) map[string]error {
		heartbeat, redelivery := jobq.Heartbeat(text), jobq.Redelivery(text)
		target := operator.Target{ID: 1, State: jobq.State(text)}
		return map[string]error{
			"queue, of a pause":             jobtest.ErrorOf(o.PauseQueue(ctx, text, "")),
			"reason, of a pause":            jobtest.ErrorOf(o.PauseQueue(ctx, "q", text)),
			"queue, of a resume":            jobtest.ErrorOf(o.ResumeQueue(ctx, text)),
			"queue, of settings":            jobtest.ErrorOf(o.SetQueue(ctx, text, operator.QueueChange{})),
			"heartbeat, of settings":        jobtest.ErrorOf(o.SetQueue(ctx, "q", operator.QueueChange{Heartbeat: &heartbeat})),
			"redelivery, of settings":       jobtest.ErrorOf(o.SetQueue(ctx, "q", operator.QueueChange{Redelivery: &redelivery})),
			"worker, of a drain":            jobtest.ErrorOf(o.DrainWorker(ctx, text)),
			"state, of a requeue":           jobtest.ErrorOf(o.Act(ctx, jobq.ActionRequeue, target)),
			"state, of an edit":             jobtest.ErrorOf(o.Edit(ctx, operator.JobChange{Priority: new(int16(1))}, target)),
			"name, of a schedule":           jobtest.ErrorOf(o.SetSchedule(ctx, jobq.Schedule{Name: text, Kind: "k", Cron: "@daily"})),
			"name, of a schedule's pause":   jobtest.ErrorOf(o.PauseSchedule(ctx, text, "")),
			"reason, of a schedule's pause": jobtest.ErrorOf(o.PauseSchedule(ctx, "s", text)),
			"name, of a schedule's resume":  jobtest.ErrorOf(o.ResumeSchedule(ctx, text)),
			"name, of a schedule's removal": jobtest.ErrorOf(o.RemoveSchedule(ctx, text)),
			"name, of a schedule's run":     jobtest.ErrorOf(o.RunSchedule(ctx, text)),
		}
	}
	for what, err := range calls(operator.New(client, "ana"), nul) {
		requireUnstorable(t, err, what)
	}
	for _, filter := range []jobq.Filter{{Queue: nul}, {Match: "queue:" + nul}} {
		_, err := operator.New(client, "ana").Bulk(ctx, operator.BulkParams{Action: jobq.ActionCancel, Filter: filter})
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, "filter, character")
	}
	filter := jobq.Filter{Queue: "q"}
	o := operator.New(client, nul)
	all := calls(o, "x")
	all["settings of the schema"] = jobtest.ErrorOf(o.SetSettings(ctx, operator.SettingsChange{}))
	all["clone"] = jobtest.ErrorOf(o.Clone(ctx, 1, operator.JobChange{}))
	all["undo"] = jobtest.ErrorOf(o.Undo(ctx, 1))
	all["by filter"] = jobtest.ErrorOf(o.Bulk(ctx, operator.BulkParams{Action: jobq.ActionCancel, Filter: filter}))
	all["resumed by filter"] = jobtest.ErrorOf(o.Bulk(ctx, operator.BulkParams{Resume: 1}))
	for what, err := range all {
		requireUnstorable(t, err, "actor, of "+what)
	}
}

// requireUnstorable requires that an error names the text that cannot be stored,
// which is the first word of what it is about.
func requireUnstorable(t *testing.T, err error, what string) {
	t.Helper()
	name, _, _ := strings.Cut(what, ",")
	require.ErrorIs(t, err, jobq.ErrInvalid, what)
	require.ErrorContains(t, err, ": invalid value: "+name+" must be valid UTF-8 without NUL bytes", what)
}
