package keyring_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/keyring"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var about = jobq.CodecValue{Field: jobq.FieldResult, Kind: "charge", JobID: 7}

func newKey(t *testing.T, name string) keyring.Key {
	t.Helper()
	key, err := keyring.NewKey(name)
	require.NoError(t, err)
	return key
}

func ring(t *testing.T, keys ...keyring.Key) *keyring.Keyring {
	t.Helper()
	k, err := keyring.New(keys...)
	require.NoError(t, err)
	return k
}

func encode(t *testing.T, k *keyring.Keyring, value string) json.RawMessage {
	t.Helper()
	stored, err := k.Encode(context.Background(), about, json.RawMessage(value))
	require.NoError(t, err)
	return stored
}

// A key is replaced in steps during which everybody can read everything: it is added behind
// the old one, then put before it, and then the old one is taken away.
func TestRotation(t *testing.T) {
	t.Parallel()
	k1, k2 := newKey(t, "k1"), newKey(t, "k2")
	before, added, moved, after := ring(t, k1), ring(t, k1, k2), ring(t, k2, k1), ring(t, k2)
	old, recent := encode(t, added, `{"n":1}`), encode(t, moved, `{"n":2}`)
	for stored, key := range map[string]string{string(old): "k1", string(recent): "k2"} {
		name, encrypted := jobq.EncryptedWith(json.RawMessage(stored))
		require.True(t, encrypted)
		require.Equal(t, key, name)
		require.NotContains(t, stored, `"n"`)
	}
	for name, test := range map[string]struct {
		ring   *keyring.Keyring
		stored json.RawMessage
		want   string // or the error
	}{
		"before, old": {before, old, `{"n":1}`}, "before, recent": {before, recent, "none of the keys here, which are k1"},
		"added, old": {added, old, `{"n":1}`}, "added, recent": {added, recent, `{"n":2}`},
		"moved, old": {moved, old, `{"n":1}`}, "moved, recent": {moved, recent, `{"n":2}`},
		"after, old": {after, old, "none of the keys here, which are k2"}, "after, recent": {after, recent, `{"n":2}`},
	} {
		value, err := test.ring.Decode(context.Background(), about, test.stored)
		if err != nil {
			require.ErrorContains(t, err, test.want, name)
			continue
		}
		require.Equal(t, test.want, string(value), name)
	}
	require.NotEqual(t, string(encode(t, added, `1`)), string(encode(t, added, `1`)), "a nonce is used once")
	require.Equal(t, []string{"k2", "k1"}, moved.Names())
}

// A value that was changed anywhere, or is not where it was written, is not decrypted. Method:
// change each byte of the ciphertext in turn, and each part of what it is bound to.
func TestTampered(t *testing.T) {
	t.Parallel()
	k := ring(t, newKey(t, "k1"))
	stored := encode(t, k, `{"amount":12}`)
	var form struct {
		Mark  string `json:"$jobq"`
		Key   string `json:"key"`
		Value string `json:"v"`
	}
	require.NoError(t, json.Unmarshal(stored, &form))
	sealed, err := base64.StdEncoding.DecodeString(form.Value)
	require.NoError(t, err)
	try := func(at jobq.CodecValue, sealed []byte) error {
		form.Value = base64.StdEncoding.EncodeToString(sealed)
		changed, err := json.Marshal(form)
		require.NoError(t, err)
		_, err = k.Decode(context.Background(), at, changed)
		return err
	}
	require.NoError(t, try(about, sealed))
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		require.Error(t, try(about, changed), i)
		require.Error(t, try(about, sealed[:i]), i)
	}
	for _, elsewhere := range []jobq.CodecValue{
		{Field: jobq.FieldCheckpoint, Kind: "charge", JobID: 7},
		{Field: jobq.FieldResult, Kind: "refund", JobID: 7},
		{Field: jobq.FieldResult, Kind: "charge", JobID: 8},
	} {
		require.ErrorContains(t, try(elsewhere, sealed), "belongs to another job", elsewhere)
	}
	other := ring(t, newKey(t, "k1"))
	_, err = other.Decode(context.Background(), about, stored)
	require.Error(t, err, "another secret of the same name")
}

// What is not encrypted is left as it is; what says that it is, and cannot be read, is an error.
func TestPlainValues(t *testing.T) {
	t.Parallel()
	k := ring(t, newKey(t, "k1"))
	for _, plain := range []string{`null`, `1`, `"$jobq"`, `{}`, `["$jobq"]`, `{"a": {"$jobq": "enc"}}`, `{"$jobq": "other", "v": ""}`} {
		value, err := k.Decode(context.Background(), about, json.RawMessage(plain))
		require.NoError(t, err, plain)
		require.Equal(t, plain, string(value))
	}
	for _, damaged := range []string{
		`{"$jobq": "enc"}`, `{"$jobq": "enc", "key": "k1"}`, `{"$jobq": "enc", "key": "k 1", "v": ""}`, `{"$jobq": "enc", "key": 1, "v": ""}`,
		`{"$jobq": "enc", "key": "k1", "v": "?"}`, `{"$jobq": "enc", "key": "k1", "v": "", "more": 1}`,
	} {
		_, err := k.Decode(context.Background(), about, json.RawMessage(damaged))
		require.Error(t, err, damaged)
	}
}

// Files of keys are read as they are meant; what cannot be meant is refused, and no
// error shows a secret.
func TestLoad(t *testing.T) {
	t.Parallel()
	k1, k2 := newKey(t, "k1"), newKey(t, "k2")
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte("# of the shop\n"+k2.Line()+"  # since May\n\n"+k1.Line()+"\r\n"), 0o600))
	loaded, err := keyring.Load(path)
	require.NoError(t, err)
	require.Equal(t, []string{"k2", "k1"}, loaded.Names())
	value, err := loaded.Decode(context.Background(), about, encode(t, ring(t, k1), `1`))
	require.NoError(t, err)
	require.Equal(t, "1", string(value))
	parsed, err := keyring.Parse(k1.Line() + "," + k2.Line())
	require.NoError(t, err)
	require.Equal(t, []string{"k1", "k2"}, parsed.Names())

	_, secret, _ := strings.Cut(k1.Line(), ":")
	for text, want := range map[string]string{
		"":                           "no keys",
		"# " + k1.Line():             "no keys",
		secret:                       "key 1 must be NAME:BASE64",
		secret + ":k1":               "key 1: the name of a key must be",
		"k1:" + secret[:40]:          "key k1: must have 32 bytes, not 30",
		"k1:" + secret + "!":         "key k1: what follows the colon must be base64",
		k1.Line() + "\n" + k1.Line(): "k1 is given twice",
	} {
		_, err := keyring.Parse(text)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), secret[:40])
	}
	_, err = keyring.Load("/does/not/exist")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = keyring.NewKey("k 1")
	require.Error(t, err)
}

// No log shows a secret, in whatever way it prints a key.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	key := newKey(t, "k1")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		require.Equal(t, "key k1", fmt.Sprintf(verb, key), verb)
		require.Contains(t, []string{"[key k1]", "[]keyring.Key{key k1}"}, fmt.Sprintf(verb, []keyring.Key{key}), verb)
	}
	inJSON, err := json.Marshal(struct{ Keys []keyring.Key }{[]keyring.Key{key}})
	require.NoError(t, err)
	require.JSONEq(t, `{"Keys": ["key k1"]}`, string(inJSON))
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(handler).Info("loaded", "key", key, "pointer", &key, "keys", []keyring.Key{key})
	}
	_, secret, _ := strings.Cut(key.Line(), ":")
	require.Equal(t, 6, strings.Count(log.String(), "key k1"), log.String())
	require.NotContains(t, log.String(), secret)
	require.NotContains(t, log.String(), strings.Trim(fmt.Sprintf("%d", key.Secret), "[]"))
}

// What a job with small args costs besides: docs/encryption-reference.md has the figure.
func BenchmarkKeyring(b *testing.B) {
	keys, err := keyring.New(keyring.Key{Name: "k1", Secret: make([]byte, 32)})
	require.NoError(b, err)
	value := json.RawMessage(`{"customer": 4711, "template": "weekly.html", "recipients": ["ana@example.com"]}`)
	stored, err := keys.Encode(context.Background(), about, value)
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			_, _ = keys.Encode(context.Background(), about, value)
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			_, _ = keys.Decode(context.Background(), about, stored)
		}
	})
}

// However many keys there are, an error that is stored with each job names few of them.
func TestErrorsNameFewKeys(t *testing.T) {
	t.Parallel()
	many := make([]keyring.Key, 70)
	for i := range many {
		many[i] = keyring.Key{Name: fmt.Sprintf("k%d", i), Secret: bytes.Repeat([]byte{byte(i)}, 32)}
	}
	ring, err := keyring.New(many...)
	require.NoError(t, err)
	_, err = ring.Decode(context.Background(), jobq.CodecValue{}, json.RawMessage(`{"$jobq": "enc", "key": "other", "v": ""}`))
	require.EqualError(t, err, "it is none of the keys here, which are k0, k1, k2, k3, k4 and 65 more")
}
