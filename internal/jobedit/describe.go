package jobedit

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
)

// Difference is what a change does to one field, as texts of one line. They are
// as the producer has written them: the caller makes them safe to show.
type Difference struct{ Field, Old, New string }

// commonShown is how much is shown of what two long texts have in common
// before they differ, in bytes.
const commonShown = 24

// Differences are what the change does to the job, field by field.
func Differences(change operator.JobChange, job *jobq.Job) (differences []Difference) {
	add := func(field, before, after string) {
		differences = append(differences, Difference{field, before, after})
	}
	if change.Queue != nil {
		add("queue", job.Queue, *change.Queue)
	}
	if change.Priority != nil {
		add("priority", strconv.Itoa(int(job.Priority)), strconv.Itoa(int(*change.Priority)))
	}
	if change.RunAt != nil {
		add("run_at", job.RunAt.Format(time.RFC3339), change.RunAt.Format(time.RFC3339))
	}
	if change.MaxAttempts != nil {
		add("max_attempts", strconv.Itoa(job.MaxAttempts), strconv.Itoa(*change.MaxAttempts))
	}
	if change.Tags != nil {
		add("tags", strings.Join(job.Tags, ","), strings.Join(*change.Tags, ","))
	}
	if change.Metadata != nil {
		add("metadata", compact(job.Metadata), compact(change.Metadata))
	}
	if change.Args != nil {
		add("args", compact(job.Args), compact(change.Args))
	}
	for i := range differences {
		differences[i].shorten()
	}
	return differences
}

// shorten leaves out most of what both begin with.
func (d *Difference) shorten() {
	common := 0
	for common < min(len(d.Old), len(d.New)) && d.Old[common] == d.New[common] {
		common++
	}
	if common <= 2*commonShown {
		return
	}
	cut := common - commonShown
	d.Old, d.New = "..."+strings.ToValidUTF8(d.Old[cut:], ""), "..."+strings.ToValidUTF8(d.New[cut:], "")
}

// OneLine is JSON without blanks, and without what a terminal might obey.
func OneLine(value json.RawMessage) string {
	if value == nil {
		return ""
	}
	return compact(value)
}
