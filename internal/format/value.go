package format

import (
	"encoding/json"

	"github.com/jobq-dev/jobq"
)

// Value is JSON as it is stored, never decoded, so that numbers keep their digits. Of an encrypted
// value it is the name of the key. It may have control characters.
func Value(stored json.RawMessage) string {
	switch key, encrypted := jobq.EncryptedWith(stored); {
	case encrypted && key == "":
		return "encrypted, but damaged"
	case encrypted:
		return "encrypted with key " + key
	}
	return string(stored)
}
