package monitor

import (
	"context"
	"errors"
	"fmt"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// OutputPiece is a part of what a program has written while it runs.
type OutputPiece struct {
	LeaseToken int64 `json:"lease_token"` // of the run
	// BeginsAt and EndsAt count the bytes that the run has written before the
	// piece and up to its end. Between two pieces there may be a gap.
	BeginsAt int64  `json:"begins_at"`
	EndsAt   int64  `json:"ends_at"`
	Content  string `json:"content"` // control characters made visible
}

// ErrOutputOnPrimary means that a hot standby was asked for the output of running programs, which only the primary server
// has. What a run has written is kept with its attempt when it ends, and that is on the standby too.
var ErrOutputOnPrimary = errors.New("what running programs write can be read on the primary server only")

// Output returns what the programs of a job have written after a piece, oldest
// first, at most 100 pieces; a zero piece means from the beginning. It has the
// output of runs that take longer than a moment, for those who follow; some
// minutes after the end only the attempt has it. On a hot standby it returns ErrOutputOnPrimary.
func (m *Monitor) Output(ctx context.Context, id int64, after OutputPiece) ([]OutputPiece, error) {
	if after == (OutputPiece{}) {
		after.BeginsAt = -1
	}
	rows, err := m.queries.OutputSince(ctx, id, after.LeaseToken, after.BeginsAt)
	if db.IsOnPrimary(err) {
		return nil, ErrOutputOnPrimary
	}
	if err != nil {
		return nil, dberror.Wrap(m.schema, fmt.Sprintf("output of job %d", id), err)
	}
	pieces := make([]OutputPiece, len(rows))
	for i, row := range rows {
		pieces[i] = OutputPiece{LeaseToken: row.LeaseToken, BeginsAt: row.BeginsAt, EndsAt: row.EndsAt, Content: row.Content}
	}
	return pieces, nil
}
