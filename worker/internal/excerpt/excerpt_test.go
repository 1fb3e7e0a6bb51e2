package excerpt_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/worker/internal/excerpt"
)

// Of a text that is too long, the beginning and the end are kept, in whole
// characters, and it says how much is not.
func FuzzExcerpt(f *testing.F) {
	f.Add(strings.Repeat("ä漢a", 100), 64)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 64 + max(limit, -limit)%1000
		if !utf8.ValidString(text) || strings.Contains(text, "…") {
			t.Skip()
		}
		short := excerpt.Of(text, limit)
		require.LessOrEqual(t, len(short), limit)
		require.True(t, utf8.ValidString(short))
		if len(text) <= limit {
			require.Equal(t, text, short)
			return
		}
		begin, rest, _ := strings.Cut(short, "\n… ")
		require.True(t, strings.HasPrefix(text, begin))
		require.True(t, strings.HasSuffix(text, rest[strings.Index(rest, "cut …\n")+len("cut …\n"):]))
	})
}
