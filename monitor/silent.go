package monitor

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// SilentRuns are runs of a queue and kind that have said nothing for long.
type SilentRuns struct {
	Queue   string        `json:"queue"`
	Kind    string        `json:"kind"`
	Runs    int64         `json:"runs"`
	Since   time.Time     `json:"since"`    // the one that has been silent for the longest
	Example int64         `json:"example"`  // the id of its job
	Usual   time.Duration `json:"usual_ns"` // how long a run of the kind takes on average; 0 when that is not known
}

// When a run is silent: see Silent.
const (
	silenceUsualSpan   = time.Hour
	silenceUsualFactor = 3
	silenceLeast       = 10 * time.Minute
	silenceUnknown     = time.Hour

	silentRunsMax   = 1_000
	silentGroupsMax = 20
)

// Silent returns the runs that have neither reported progress nor written output
// for long, those that have been silent for the longest first. Long is three times
// what runs of the kind that ended within the last hour took on average, and ten
// minutes at least; an hour where no run of the kind has ended. A worker that
// extends the lease is no sign of the run. Of runs that have not reported progress
// for that long, it looks at the output of 1,000. It returns up to 20 groups, and none on a hot standby, which has no
// output (ErrOutputOnPrimary).
func (m *Monitor) Silent(ctx context.Context) ([]SilentRuns, error) {
	rows, err := m.queries.RunsSilent(ctx, db.RunsSilentParams{
		Span: db.Interval(silenceUsualSpan), UsualFactor: silenceUsualFactor, LeastSilence: db.Interval(silenceLeast),
		UnknownSilence: db.Interval(silenceUnknown), RowCount: silentRunsMax, GroupCount: silentGroupsMax,
	})
	if db.IsOnPrimary(err) {
		return nil, nil
	}
	if err != nil {
		return nil, dberror.Wrap(m.schema, "silent runs", err)
	}
	silent := make([]SilentRuns, len(rows))
	for i, row := range rows {
		silent[i] = SilentRuns{row.Queue, row.Kind, row.Runs, db.Moment(row.Since), row.Example, db.Seconds(row.UsualSeconds)}
	}
	return silent, nil
}
