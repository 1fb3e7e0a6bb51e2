package subproc_test

import (
	"context"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/subproc"
)

// BenchmarkTrue is the cost of a program that does nothing: without a shim, with
// a new one for each, and with those that are kept.
func BenchmarkTrue(b *testing.B) {
	command := subproc.Command{Args: []string{"/bin/true"}, Stdin: []byte("{}")}
	b.Run("without supervision", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, exec.Command("/bin/true").Run())
		}
	})
	b.Run("new shim", func(b *testing.B) {
		for b.Loop() {
			var s subproc.Supervisor
			_, err := s.Run(context.Background(), command)
			require.NoError(b, err)
			s.Close()
		}
	})
	b.Run("kept", func(b *testing.B) {
		var s subproc.Supervisor
		defer s.Close()
		for b.Loop() {
			_, err := s.Run(context.Background(), command)
			require.NoError(b, err)
		}
	})
	b.Run("kept, parallel", func(b *testing.B) {
		var s subproc.Supervisor
		defer s.Close()
		b.SetParallelism(2)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, err := s.Run(context.Background(), command)
				require.NoError(b, err)
			}
		})
	})
}
