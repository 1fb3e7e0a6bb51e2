package subproc

import "time"

// WaitForStreams makes a supervisor wait that long for those who have a
// program's streams open after its end.
func WaitForStreams(s *Supervisor, patience time.Duration) { s.streamPatience = patience }

// PatienceBefore is how long a shim may take to kill, so long before the deadline.
func PatienceBefore(left time.Duration) time.Duration {
	p := &supervised{command: Command{Deadline: func() time.Duration { return sinceBoot() + left }}}
	return p.patience()
}

// PatienceWhenFrozen is how long a shim may take to kill a program that is frozen.
func PatienceWhenFrozen() time.Duration {
	p := &supervised{command: Command{Freezes: true, Deadline: func() time.Duration { return 1 }}}
	return p.patience()
}
