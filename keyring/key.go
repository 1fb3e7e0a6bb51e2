package keyring

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/jobq-dev/jobq/internal/coding"
)

// fileBytesMax bounds a file of keys.
const fileBytesMax = 1 << 20

// Key is a key with its name.
type Key struct {
	// Name is stored with each value that the key encrypts: 1 to 64 letters, digits, '.',
	// '_' and '-'. It is no secret.
	Name string
	// Secret is 32 random bytes.
	Secret []byte
}

// NewKey returns a key of that name with a new random secret.
func NewKey(name string) (Key, error) {
	if err := coding.CheckKeyName(name); err != nil {
		return Key{}, err
	}
	secret := make([]byte, chacha20poly1305.KeySize)
	if _, err := rand.Read(secret); err != nil {
		return Key{}, err
	}
	return Key{name, secret}, nil
}

// Line is the key as a line of a file of keys, secret and all: NAME:BASE64.
func (k Key) Line() string { return k.Name + ":" + base64.StdEncoding.EncodeToString(k.Secret) }

// String is the name: the secret is shown by Line alone.
func (k Key) String() string { return "key " + k.Name }

// Format writes String, whatever the verb.
func (k Key) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, k.String()) }

// LogValue is String.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalJSON encodes String, for logs in JSON. A key cannot be read back from that: use Line and Parse.
func (k Key) MarshalJSON() ([]byte, error) { return json.Marshal(k.String()) }

// Parse returns a Keyring of the keys in a text: NAME:BASE64 each, separated by line ends, blanks or
// commas. What follows # on a line is not read. The first key encrypts. Errors do not show secrets.
func Parse(text string) (*Keyring, error) {
	var keys []Key
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for _, word := range strings.FieldsFunc(line, func(char rune) bool { return strings.ContainsRune(" \t\r\n,", char) }) {
			name, encoded, ok := strings.Cut(word, ":")
			if !ok {
				return nil, fmt.Errorf("keyring: key %d must be NAME:BASE64, as \"jobq keygen\" prints it", len(keys)+1)
			}
			if err := coding.CheckKeyName(name); err != nil {
				return nil, fmt.Errorf("keyring: key %d: %w", len(keys)+1, err)
			}
			secret, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				return nil, fmt.Errorf("keyring: key %s: what follows the colon must be base64", name)
			}
			keys = append(keys, Key{name, secret})
		}
	}
	return New(keys...)
}

// Load is Parse for a file.
func Load(path string) (*Keyring, error) {
	file, err := os.Open(path) // #nosec G304 -- the operator's own file
	if err != nil {
		return nil, fmt.Errorf("keyring: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	content, err := io.ReadAll(io.LimitReader(file, fileBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("keyring: %w", err)
	}
	if len(content) > fileBytesMax {
		return nil, fmt.Errorf("keyring: %s is longer than %d bytes", path, fileBytesMax)
	}
	keys, err := Parse(string(bytes.TrimPrefix(content, []byte("\ufeff"))))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}
