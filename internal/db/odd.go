package db

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// oddRow scans a row whose values pgx would refuse: an infinite time where a column may be null, and an array
// of texts with a null in it. No version of jobq writes them, but the schema's owner can. One such value would
// make a whole list fail.
type oddRow struct{ pgx.Rows }

func (r oddRow) Scan(targets ...any) error { return r.Rows.Scan(tolerant(targets)...) }

// tolerant replaces those targets that refuse odd values. It changes the slice, which nobody reads again.
func tolerant(targets []any) []any {
	for i, target := range targets {
		switch target := target.(type) {
		case **time.Time:
			targets[i] = moment{target}
		case *[]string:
			targets[i] = &texts{into: target}
		}
	}
	return targets
}

// moment reads a time, or null.
type moment struct{ into **time.Time }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (m moment) ScanTimestamptz(value pgtype.Timestamptz) error {
	if *m.into = nil; value.Valid {
		at := value.Time
		if value.InfinityModifier != pgtype.Finite {
			at = Moment(value)
		}
		*m.into = &at
	}
	return nil
}

// texts reads an array of texts of any shape, as a list.
type texts struct{ into *[]string }

// SetDimensions implements pgtype.ArraySetter.
func (t *texts) SetDimensions(dimensions []pgtype.ArrayDimension) error {
	if dimensions == nil { // null
		*t.into = nil
		return nil
	}
	count := int32(0)
	for i, each := range dimensions {
		if i == 0 {
			count = 1
		}
		count *= each.Length
	}
	*t.into = make([]string, count)
	return nil
}

// ScanIndex implements pgtype.ArraySetter.
func (t *texts) ScanIndex(i int) any { return &text{&(*t.into)[i]} }

// ScanIndexType implements pgtype.ArraySetter.
func (t *texts) ScanIndexType() any { return new(text) }

// text reads a text, and null as an empty one.
type text struct{ into *string }

// ScanText implements pgtype.TextScanner.
func (t *text) ScanText(value pgtype.Text) error {
	*t.into = value.String
	return nil
}
