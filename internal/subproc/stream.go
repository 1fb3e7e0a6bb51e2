package subproc

import (
	"errors"
	"io"
	"os"
	"sync"
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

	mu   sync.Mutex   // held while something is read and kept
	keep func([]byte) // what settle does with what it reads; nil when it may not read
}

// cut makes reads stop waiting. What the program had written before it ended
// is in the pipe by then, and is still read, however late the reader comes.
// Called at most once.
func (s *stream) cut() {
	_ = s.SetReadDeadline(time.Now()) // closed already: fine
}

// readKept reads once and keeps what has come. No settle of another goroutine
// finds the pipe empty while something that was read is not kept yet.
func (s *stream) readKept(buffer []byte) error {
	if !s.isCut {
		count := 0
		raw, err := s.SyscallConn()
		if err != nil {
			return err
		}
		err = raw.Read(func(descriptor uintptr) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			var readErr error
			count, readErr = readAgain(descriptor, buffer)
			s.keep(buffer[:max(count, 0)])
			return !errors.Is(readErr, syscall.EAGAIN) // else it waits until there is something
		})
		switch {
		case err == nil && count > 0:
			return nil
		case err == nil: // nobody has the other end
			return io.EOF
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
	}
	count, err := s.Read(buffer)
	s.keep(buffer[:count])
	return err
}

// settle keeps what is in the pipe now, before the reader comes to it.
func (s *stream) settle() {
	raw, err := s.SyscallConn()
	if err != nil {
		return // closed: read to its end
	}
	buffer := make([]byte, 4<<10)
	_ = raw.Control(func(descriptor uintptr) { // likewise
		s.mu.Lock()
		defer s.mu.Unlock()
		for read := 0; read < leftBytesMax; {
			count, err := readAgain(descriptor, buffer)
			if err != nil || count <= 0 {
				return
			}
			s.keep(buffer[:count])
			read += count
		}
	})
}

// readAgain reads what is there, without waiting.
func readAgain(descriptor uintptr, target []byte) (count int, err error) {
	for {
		count, err = syscall.Read(int(descriptor), target) // #nosec G115 -- descriptors are small
		if !errors.Is(err, syscall.EINTR) {
			return count, err
		}
	}
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
	count := 0
	err = raw.Read(func(descriptor uintptr) bool {
		count, _ = readAgain(descriptor, target) // EAGAIN: nothing there
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case count <= 0: // or nobody has the other end
		return 0, io.EOF
	}
	return count, nil
}
