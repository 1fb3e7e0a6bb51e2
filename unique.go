package jobq

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/storable"
)

// AllArgs in place of the fields of EnqueueOptions.UniqueBy stands for all of the args.
const AllArgs = "*"

// Conflict is what an enqueue does when another job holds the unique key.
type Conflict string

// What it can do.
const (
	// ConflictSkip adds nothing, and answers with the job that holds the key. It is the default.
	ConflictSkip Conflict = "skip"
	// ConflictReplace gives the job that holds the key the new args, priority and start, and
	// answers with it as Replaced. All else, such as its queue and its attempts, stays as it
	// was. A job that has begun is not changed: one that runs, one that has stored a step or a
	// checkpoint and will go on from there, or one that has ended and still holds its key.
	ConflictReplace Conflict = "replace"
	// ConflictFail refuses the enqueue with ErrDuplicate, and all jobs of the same call.
	ConflictFail Conflict = "fail"
)

// uniqueness is what the database is told of a unique key beside the key: the function
// unique_rule of the migrations reads it, and makes the key, for all languages.
type uniqueness struct {
	By         []string `json:"by,omitempty"`
	Window     string   `json:"window,omitempty"`
	For        string   `json:"for,omitempty"`
	OnConflict Conflict `json:"on_conflict,omitempty"`
}

// hasUniqueness says whether a unique key alone does not say it all.
func (o *EnqueueOptions) hasUniqueness() bool {
	return len(o.UniqueBy) > 0 || o.UniqueFor != 0 || o.UniqueWindow != 0 || o.OnConflict != ""
}

func (o *EnqueueOptions) uniqueness() (json.RawMessage, error) {
	return json.Marshal(uniqueness{By: o.UniqueBy, Window: interval(o.UniqueWindow), For: interval(o.UniqueFor), OnConflict: o.OnConflict})
}

// interval is a time as all versions of PostgreSQL read it; "" for none.
func interval(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return db.IntervalText(d)
}

// uniqueDefaults takes from the defaults of a kind what the caller leaves zero. A key, and a time, that
// the caller gives stand in place of what the kind has of either sort.
func (o *EnqueueOptions) uniqueDefaults(defaults *EnqueueOptions) {
	if o.UniqueKey == "" && len(o.UniqueBy) == 0 {
		o.UniqueKey, o.UniqueBy = defaults.UniqueKey, defaults.UniqueBy
	}
	if o.UniqueFor == 0 && o.UniqueWindow == 0 {
		o.UniqueFor, o.UniqueWindow = defaults.UniqueFor, defaults.UniqueWindow
	}
	o.OnConflict = cmp.Or(o.OnConflict, defaults.OnConflict)
}

// checkUniqueness refuses texts that the database cannot read.
func (o *EnqueueOptions) checkUniqueness() error {
	for _, field := range o.UniqueBy {
		if err := storable.Text("unique_by", field); err != nil {
			return err
		}
	}
	return storable.Text("on_conflict", string(o.OnConflict))
}

// uniqueWithCodec refuses UniqueBy for a client with a codec. The database makes that key of the
// args, and sees only encoded args, which differ each time.
func (c *Client) uniqueWithCodec(options *EnqueueOptions) error {
	if c.codec != nil && len(options.UniqueBy) > 0 {
		return errors.New("UniqueBy is not for a client with a codec, whose args the database cannot read: give a UniqueKey")
	}
	return nil
}
