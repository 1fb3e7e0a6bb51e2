//go:build !linux

package listen

import "net"

// setUserTimeout does nothing where there is no such option: the ping notices
// a vanished peer, a little later.
func setUserTimeout(*net.TCPConn) error { return nil }
