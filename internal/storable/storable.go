// Package storable refuses values that PostgreSQL cannot store, or that would be
// cut off on their way into its types, and names the field. The database checks all
// other limits.
package storable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Count refuses what a smallint would cut off. Zero means the default.
func Count(name string, count int) error {
	if count < 0 || count > 32767 {
		return fmt.Errorf("%s must be 1 to 32767, not %d", name, count)
	}
	return nil
}

// RunAt refuses years far beyond which the protocol's microseconds wrap around.
func RunAt(moment time.Time) error {
	if year := moment.UTC().Year(); year < 1 || year > 9999 {
		return fmt.Errorf("run_at must be in the years 1 to 9999, not %d", year)
	}
	return nil
}

// Tags refuses tags that are no text to PostgreSQL.
func Tags(tags []string) error {
	for _, tag := range tags {
		if err := Text("tags", tag); err != nil {
			return err
		}
	}
	return nil
}

// Text refuses what is no text to PostgreSQL.
func Text(name, text string) error {
	if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		return fmt.Errorf("%s must be valid UTF-8 without NUL bytes, not %q", name, shortened(text))
	}
	return nil
}

// JSON refuses what is no JSON, or none that PostgreSQL can store. What only
// the database can tell, such as that it is nested too deeply for it, is left to
// the database.
func JSON(name string, content json.RawMessage) error {
	if content == nil {
		return nil
	}
	if err := json.Unmarshal(content, new(json.RawMessage)); err != nil {
		return fmt.Errorf("%s must be JSON: %w", name, err)
	}
	return Encoded(name, content)
}

// Encoded refuses valid JSON with text in it that is none to PostgreSQL.
func Encoded(name string, content []byte) error {
	if !utf8.Valid(content) {
		return fmt.Errorf("%s must be valid UTF-8", name)
	}
	if hasNUL(content) {
		return fmt.Errorf(`%s must not contain the NUL character (\u0000): PostgreSQL cannot store it`, name)
	}
	return nil
}

// hasNUL says whether a JSON text has \u0000 in it, which \\u0000 is not: that is
// a backslash and five more characters.
func hasNUL(content []byte) bool {
	if !bytes.Contains(content, []byte(`\u0000`)) {
		return false
	}
	for i := 0; i+1 < len(content); i++ {
		if content[i] == '\\' {
			if bytes.HasPrefix(content[i:], []byte(`\u0000`)) {
				return true
			}
			i++ // what is escaped
		}
	}
	return false
}

// shortened is a value that is quoted in an error.
func shortened(text string) string {
	const longest = 50
	if len(text) > longest {
		return text[:longest] + "..."
	}
	return text
}
