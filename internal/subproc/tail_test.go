package subproc

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A tail has the end of what was written, in whatever pieces it came, and tells
// what is new since any moment.
func TestTail(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 7, 64} {
		tail := NewTail(limit)
		var all []byte
		for range 300 {
			chunk := make([]byte, rand.N(2*limit))
			for i := range chunk {
				chunk[i] = byte('a' + (len(all)+i)%26)
			}
			before := int64(len(all))
			tail.add(chunk)
			all = append(all, chunk...)
			kept := all[max(0, len(all)-limit):]
			require.Equal(t, string(kept), string(tail.Bytes()))
			require.Equal(t, int64(len(all)), tail.Written())
			content, begin := tail.Since(before)
			require.Equal(t, max(before, int64(len(all)-len(kept))), begin)
			require.Equal(t, string(all[begin:]), string(content))
		}
		tail.Reset()
		require.Empty(t, tail.Bytes())
		content, begin := tail.Since(0)
		require.Empty(t, content)
		require.Zero(t, begin)
	}
}
