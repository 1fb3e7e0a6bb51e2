package coding

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// Encrypted is an encrypted value. It is stored as JSON, so that it fits into the same
// column as any other value:
//
//	{"$jobq": "enc", "key": "k2", "v": "4hUQ0lqt…"}
type Encrypted struct {
	Key        string // the name of the key
	Ciphertext []byte
}

// mark is the member that no other value has, and encrypted is what it says.
const (
	mark      = "$jobq"
	encrypted = "enc"
)

// form is how it is stored.
type form struct {
	Mark  string `json:"$jobq"`
	Key   string `json:"key"`
	Value string `json:"v"` // in base64
}

// JSON is the value as it is stored.
func (e Encrypted) JSON() (json.RawMessage, error) {
	return json.Marshal(form{encrypted, e.Key, base64.StdEncoding.EncodeToString(e.Ciphertext)})
}

// keyNameMax is how long the name of a key can be.
const keyNameMax = 64

// CheckKeyName refuses a name that no key can have. The error does not show it: where name and
// secret were mixed up, it is the secret.
func CheckKeyName(name string) error {
	valid := len(name) > 0 && len(name) <= keyNameMax
	for _, char := range []byte(name) {
		switch {
		case char >= 'a' && char <= 'z', char >= 'A' && char <= 'Z', char >= '0' && char <= '9', char == '.', char == '_', char == '-':
		default:
			valid = false
		}
	}
	if !valid {
		return fmt.Errorf("the name of a key must be 1 to %d letters, digits, '.', '_' and '-'", keyNameMax)
	}
	return nil
}

// Parse reads a stored value, and says whether it is an encrypted one. An error is about
// one that is, and that cannot be read.
func Parse(stored json.RawMessage) (e Encrypted, is bool, err error) {
	// Almost no value has the mark, and those need no more than this look.
	if !bytes.Contains(stored, []byte(`"`+mark+`"`)) {
		return e, false, nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(stored, &members) != nil || string(members[mark]) != `"`+encrypted+`"` {
		return e, false, nil // an array, or deeper in an object
	}
	var read form
	decoder := json.NewDecoder(bytes.NewReader(stored))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return e, true, fmt.Errorf("an encrypted value has only %q, key and v, as texts: %w", mark, err)
	}
	if err := CheckKeyName(read.Key); err != nil {
		return e, true, err
	}
	e.Key = read.Key
	if e.Ciphertext, err = base64.StdEncoding.DecodeString(read.Value); err != nil {
		return e, true, errors.New("v is not base64")
	}
	return e, true, nil
}
