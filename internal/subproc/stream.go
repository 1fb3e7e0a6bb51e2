package subproc

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// leftBytesMax bounds what is read of a stream after its cut: the size of the
// largest pipe that a program without privileges can make.
const leftBytesMax = 1 << 20

// stream is our end of what a program writes. It ends when everybody has
// closed the other end, or with its cut.
type stream struct {
	*os.File
	isCut bool // the reader's own
	left  int  // bytes that may still be read then
}

// cut makes reads stop waiting. What the program had written before it ended
// is in the pipe by then, and is still read, however late the reader comes.
// Called at most once.
func (s *stream) cut() {
	_ = s.SetReadDeadline(time.Now()) // closed already: fine
}

// Read is for one goroutine at a time.
func (s *stream) Read(target []byte) (int, error) {
	if !s.isCut {
		count, err := s.File.Read(target)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return count, err
		}
		s.isCut, s.left = true, leftBytesMax
		if err := s.SetReadDeadline(time.Time{}); err != nil { // it would let nothing be read
			return 0, err
		}
	}
	count, err := s.readNow(target[:min(len(target), s.left)])
	s.left -= count
	return count, err
}

// readNow reads what is in the pipe. Nothing there is the end.
func (s *stream) readNow(target []byte) (int, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, err
	}
	count, readErr := 0, error(nil)
	err = raw.Read(func(descriptor uintptr) bool {
		count, readErr = syscall.Read(int(descriptor), target) // #nosec G115 -- descriptors are small
		return !errors.Is(readErr, syscall.EINTR)
	})
	switch {
	case err != nil:
		return 0, err
	case count <= 0: // EAGAIN, or nobody has the other end
		return 0, io.EOF
	}
	return count, nil
}
