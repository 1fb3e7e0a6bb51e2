package db

import (
	"errors"
	"net"
	"syscall"
)

// isQuiet says whether a connection is open, as far as this end knows, and the other
// has sent nothing that was not read: a server that ends a session says so, or at least
// closes the connection.
func isQuiet(conn net.Conn) bool {
	source, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := source.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Control(func(descriptor uintptr) {
		_, _, err := syscall.Recvfrom(int(descriptor), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN)
	})
	return err == nil && quiet
}
