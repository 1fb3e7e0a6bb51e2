package command

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The registry has no key twice in one place, a help for everything, and
// docs/tui-keys.md says the same.
func TestRegistry(t *testing.T) {
	t.Parallel()
	for _, name := range append(slices.Clone(notOnJob), Job) {
		seen := make(map[string]string)
		for _, c := range All() {
			if !c.On(name) {
				continue
			}
			for _, key := range c.Keys {
				require.Empty(t, seen[key], "%s is %s and %s", key, seen[key], c.ID)
				seen[key] = c.ID
			}
		}
	}
	ids := make(map[string]bool)
	for _, c := range All() {
		require.NotEmpty(t, c.Help, c.ID)
		require.False(t, ids[c.ID], c.ID)
		ids[c.ID] = true
	}
	const path = "../../docs/tui-keys.md"
	if os.Getenv("JOBQ_GOLDEN") == "write" {
		require.NoError(t, os.WriteFile(path, []byte(Markdown()), 0o600))
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, Markdown(), string(content), "JOBQ_GOLDEN=write go test ./tui/command writes it anew")
}
