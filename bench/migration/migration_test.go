package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Goal: the whole measurement, at a thousandth of its size, finds that nothing
// is lost and nothing runs twice.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := thereAndBack(context.Background(), &out, pgtest.URL(t), scaled(0.001), 20)
	t.Log(out.String())
	require.NoError(t, err)
}
