package doctor_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/doctor"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// objects.txt is what the migrations make. JOBQ_GOLDEN=write writes it anew.
func TestObjects(t *testing.T) {
	t.Parallel()
	lines, err := doctor.Objects(context.Background(), pgtest.Pool(t))
	require.NoError(t, err)
	text := strings.Join(lines, "\n") + "\n"
	if os.Getenv("JOBQ_GOLDEN") == "write" {
		require.NoError(t, os.WriteFile("objects.txt", []byte(text), 0o600))
	}
	content, err := os.ReadFile("objects.txt")
	require.NoError(t, err)
	require.Equal(t, text, string(content), "JOBQ_GOLDEN=write writes it anew")
}
