// Package keyring encrypts the args, checkpoints, results and steps of jobs: a Keyring is a
// jobq.Codec. docs/encryption.md says what that protects, and what it does not.
//
//	keys, err := keyring.Load("/etc/jobq/keys")
//	…
//	client, err := jobq.NewClient(pool, &jobq.Config{Codec: keys})
//
// Each value is encrypted by itself with XChaCha20-Poly1305, under the first of the keys
// and with a random nonce of 24 bytes. The name of the key is stored with it. All keys
// decrypt. The field, the kind of the job and, except for args, its id are authenticated, and so is
// the name of a step: a value that was changed, or moved to where it does not belong, is not
// decrypted.
package keyring

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/coding"
)

// Keyring is keys that encrypt and decrypt. It is safe for concurrent use and its keys never change.
type Keyring struct {
	names []string // in their order: the first encrypts
	keys  map[string]*secret
}

// secret is what a key encrypts and decrypts with.
type secret struct {
	cipher.AEAD
	proven atomic.Bool // it has decrypted a value: it is not a wrong one under the right name
}

var _ jobq.Codec = (*Keyring)(nil)

// New returns a Keyring of the keys, of which there must be at least one: the first
// encrypts, and all decrypt.
func New(keys ...Key) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, errors.New("keyring: there are no keys")
	}
	k := &Keyring{keys: make(map[string]*secret, len(keys))}
	for _, key := range keys {
		if err := coding.CheckKeyName(key.Name); err != nil {
			return nil, fmt.Errorf("keyring: %w", err)
		}
		if _, twice := k.keys[key.Name]; twice {
			return nil, fmt.Errorf("keyring: key %s is given twice", key.Name)
		}
		aead, err := chacha20poly1305.NewX(key.Secret)
		if err != nil {
			return nil, fmt.Errorf("keyring: key %s: must have %d bytes, not %d", key.Name, chacha20poly1305.KeySize, len(key.Secret))
		}
		k.names, k.keys[key.Name] = append(k.names, key.Name), &secret{AEAD: aead}
	}
	return k, nil
}

// namesShown is how many names of keys an error has.
const namesShown = 5

func (k *Keyring) someNames() string {
	if more := len(k.names) - namesShown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(k.names[:namesShown], ", "), more)
	}
	return strings.Join(k.names, ", ")
}

// Names are the names of the keys, in their order.
func (k *Keyring) Names() []string { return append([]string(nil), k.names...) }

// Encode encrypts a value with the first key.
func (k *Keyring) Encode(_ context.Context, about jobq.CodecValue, value json.RawMessage) (json.RawMessage, error) {
	name := k.names[0]
	aead := k.keys[name]
	sealed := make([]byte, aead.NonceSize(), aead.NonceSize()+len(value)+aead.Overhead())
	if _, err := rand.Read(sealed); err != nil {
		return nil, err
	}
	sealed = aead.Seal(sealed, sealed, value, authenticated(about))
	return coding.Encrypted{Key: name, Ciphertext: sealed}.JSON()
}

// Decode decrypts a value with the key that it names. A value that is not encrypted it returns as it is.
func (k *Keyring) Decode(_ context.Context, about jobq.CodecValue, stored json.RawMessage) (json.RawMessage, error) {
	encrypted, is, err := coding.Parse(stored)
	if !is {
		return stored, nil
	}
	if err != nil {
		return nil, damagedError{err}
	}
	key, ok := k.keys[encrypted.Key]
	if !ok {
		return nil, fmt.Errorf("it is none of the keys here, which are %s", k.someNames())
	}
	if len(encrypted.Ciphertext) < key.NonceSize() {
		return nil, damagedError{errors.New("the value is too short")}
	}
	nonce, sealed := encrypted.Ciphertext[:key.NonceSize()], encrypted.Ciphertext[key.NonceSize():]
	value, err := key.Open(nil, nonce, sealed, authenticated(about))
	switch {
	case err == nil:
		if !key.proven.Load() {
			key.proven.Store(true)
		}
		return value, nil
	case key.proven.Load():
		return nil, damagedError{errors.New("the value was changed, belongs to another job, or the key has another secret elsewhere")}
	}
	return nil, doubtfulError{errors.New("the value was changed, belongs to another job, or the key has another secret elsewhere (it has decrypted nothing here so far)")}
}

// damagedError is of a value that no key of that name decrypts.
type damagedError struct{ error }

// Is says that workers need not try again.
func (damagedError) Is(target error) bool { return target == coding.ErrDamaged }

// doubtfulError is of a value that this key does not decrypt, and perhaps another one of that name.
type doubtfulError struct{ error }

// Is says that other workers may be able to.
func (doubtfulError) Is(target error) bool { return target == coding.ErrDoubtful }

// authenticated is what a value is bound to. None of its parts has a NUL, which PostgreSQL
// does not store, and so no two values have the same.
func authenticated(about jobq.CodecValue) []byte {
	text := "jobq\x00" + string(about.Field) + "\x00" + strconv.FormatInt(about.JobID, 10) + "\x00" + about.Kind
	if about.Field == jobq.FieldStep {
		text += "\x00" + about.Name
	}
	return []byte(text)
}
