package operator_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// Plain args do not take the place of encrypted ones: by an edit, one by filter, or a clone. Encrypted ones do, and
// so do plain args in an undo, which were there before.
func TestEncryptedArgsStay(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	form := func(value string) json.RawMessage {
		return json.RawMessage(`{"$jobq": "enc", "key": "k1", "v": "` + value + `"}`)
	}
	plain := operator.JobChange{Args: json.RawMessage(`{"n": 2}`)}
	id := w.InState(jobq.StateAvailable, jobq.EnqueueOptions{Queue: "q"})
	encrypted, err := ana.Edit(ctx, operator.JobChange{Args: form("AAAA")}, operator.Target{ID: id})
	require.NoError(t, err)
	require.Equal(t, 1, encrypted.Changed())

	for _, change := range []operator.JobChange{plain, {Args: json.RawMessage(`null`)}, {Args: json.RawMessage(`["$jobq", "enc"]`)}, {Args: json.RawMessage(`{"$jobq": "other"}`)}} {
		refused, err := ana.Edit(ctx, change, operator.Target{ID: id})
		require.NoError(t, err)
		require.Zero(t, refused.Changed(), string(change.Args))
		require.ErrorIs(t, refused.Problems()[0].Err(), jobq.ErrConflict)
		require.Contains(t, refused.Problems()[0].Problem, `its args are encrypted with key "k1", and the new ones are plain text`)
		_, err = ana.Clone(ctx, id, change)
		require.ErrorIs(t, err, jobq.ErrConflict)
	}
	progress, err := ana.Bulk(ctx, operator.BulkParams{Action: jobq.ActionEdit, Filter: jobq.Filter{Match: "queue:q"}, Change: plain})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, []int{progress.Done, progress.Refused})
	job, err := w.Client.Get(ctx, id)
	require.NoError(t, err)
	require.JSONEq(t, string(form("AAAA")), string(job.Args))

	again, err := ana.Edit(ctx, operator.JobChange{Args: form("BBBB"), Priority: new(int16(3))}, operator.Target{ID: id})
	require.NoError(t, err)
	require.Equal(t, 1, again.Changed())
	_, err = ana.Clone(ctx, id, operator.JobChange{Args: form("CCCC")})
	require.NoError(t, err)
	_, err = ana.Clone(ctx, id, operator.JobChange{Priority: new(int16(1))})
	require.NoError(t, err)
	for _, action := range []int64{again.AuditID, encrypted.AuditID} {
		undone, err := ana.Undo(ctx, action)
		require.NoError(t, err)
		require.Equal(t, 1, undone.Changed(), "%v", undone.Problems())
	}
	job, err = w.Client.Get(ctx, id)
	require.NoError(t, err)
	require.NotContains(t, string(job.Args), "$jobq")
}
