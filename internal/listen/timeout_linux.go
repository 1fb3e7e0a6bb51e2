package listen

import (
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h, in milliseconds.
const tcpUserTimeout = 18

// setUserTimeout bounds how long the kernel waits for a peer that does not
// acknowledge what was sent. Unix sockets have no such thing.
func setUserTimeout(network, _ string, conn syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var setErr error
	err := conn.Control(func(descriptor uintptr) {
		setErr = syscall.SetsockoptInt(int(descriptor), syscall.IPPROTO_TCP, tcpUserTimeout, int(userTimeout.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return setErr
}
