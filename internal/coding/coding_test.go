package coding_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/coding"
)

// The parser never panics, and what it has read is written as something that it reads alike.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"$jobq":"enc","key":"k1","v":"AAEC"}`, `{"$jobq":"enc"}`, `["$jobq"]`, `{"$jobq":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		read, is, err := coding.Parse(stored)
		if err != nil || !is {
			return
		}
		require.True(t, json.Valid(stored))
		written, err := read.JSON()
		require.NoError(t, err)
		again, is, err := coding.Parse(written)
		require.NoError(t, err)
		require.True(t, is)
		require.Equal(t, read.Key, again.Key)
		require.Equal(t, string(read.Ciphertext), string(again.Ciphertext))
	})
}
