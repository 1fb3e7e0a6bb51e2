package measure

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

// stat is a line of /proc/PID/stat, with times in ticks.
func stat(name, state string, parent, own, reaped int) *fstest.MapFile {
	line := fmt.Sprintf("1 (%s) %s %d 0 0 0 0 0 0 0 0 0 %d 0 %d 0 20 0", name, state, parent, own, reaped)
	return &fstest.MapFile{Data: []byte(line)}
}

// A name may have spaces and parentheses; what is not in the content is an
// error and not a zero.
func TestParseStat(t *testing.T) {
	t.Parallel()
	p, err := parseStat("4711 (a) b (c)) S 1 4711 4711 0 -1 4194304 9 8 7 6 250 50 3 2 20 0 1 0 99\n")
	require.NoError(t, err)
	require.Equal(t, Process{Name: "a) b (c)", State: "S", Parent: 1, Own: 3 * time.Second, Reaped: 50 * time.Millisecond}, p)
	for _, content := range []string{
		"", "4711", "4711 ) (", "4711 (jobq) S 1 2 3", "4711 (jobq) S x 2 3 4 5 6 7 8 9 10 11 12 13 14",
		"4711 (jobq) S 1 2 3 4 5 6 7 8 9 10 x 12 13 14", "4711 (jobq) S 1 2 3 4 5 6 7 8 9 10 11 12 13 x",
	} {
		_, err := parseStat(content)
		require.Error(t, err, "%q", content)
	}
}

// hookedFS does something before a file is read.
type hookedFS struct {
	fstest.MapFS
	before func(name string)
}

func (h hookedFS) ReadFile(name string) ([]byte, error) {
	h.before(name)
	return h.MapFS.ReadFile(name)
}

// A family's time is its own, its children's and that of those which have
// ended, and not that of others, whatever they are called.
func TestFamilyCPU(t *testing.T) {
	t.Parallel()
	proc := fstest.MapFS{
		"100/stat": stat("postgres", "S", 1, 5, 7),
		"200/stat": stat("postgres: a) R 100 (", "R", 100, 30, 0),
		"300/stat": stat("other", "R", 200, 1000, 0),
		"self":     {},
	}
	require.Equal(t, 42*tick, familyCPU(proc, 100))
	require.Equal(t, 100, postmasterOf(proc, 200))
	require.Zero(t, postmasterOf(proc, 300), "not of PostgreSQL")
	require.Zero(t, postmasterOf(proc, 400), "not there")
}

// A child that is reaped while the family is read is counted once, in whatever
// order its time goes to its parent and itself out of sight.
func TestFamilyCPUWhileChildrenEnd(t *testing.T) {
	t.Parallel()
	// What is there by each look at the child.
	type look struct {
		reaped int
		child  string // its state, or none
	}
	for name, all := range map[string][]look{
		"gone":             {{37, ""}},
		"reaped and there": {{37, reaping}, {37, reaping}, {37, ""}},
		"there as it goes": {{7, reaping}, {37, reaping}, {37, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proc := hookedFS{MapFS: fstest.MapFS{
				"100/stat": stat("postgres", "S", 1, 5, 7),
				"200/stat": stat("postgres", "R", 100, 30, 0),
			}}
			proc.before = func(name string) {
				if name != "200/stat" || len(all) == 0 {
					return
				}
				proc.MapFS["100/stat"] = stat("postgres", "S", 1, 5, all[0].reaped)
				proc.MapFS["200/stat"] = stat("postgres", all[0].child, 100, 30, 0)
				if all[0].child == "" {
					delete(proc.MapFS, "200/stat")
				}
				all = all[1:]
			}
			require.Equal(t, 42*tick, familyCPU(proc, 100))
		})
	}
}

// A family of which a child ends in every reading is read a bounded number of
// times.
func TestFamilyCPUNeverSettled(t *testing.T) {
	t.Parallel()
	proc := hookedFS{MapFS: fstest.MapFS{"200/stat": stat("postgres", "R", 100, 30, 0)}}
	reads := 0
	proc.before = func(name string) {
		if name == "100/stat" {
			reads++
			proc.MapFS["100/stat"] = stat("postgres", "S", 1, 5, reads)
		}
	}
	require.Greater(t, familyCPU(proc, 100), 35*tick)
	require.Equal(t, 3*familyTries, reads, "before and after the others, and among them")
}
