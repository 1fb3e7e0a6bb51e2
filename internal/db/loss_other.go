//go:build !linux

package db

import (
	"net"
	"time"
)

// setUserTimeout does nothing where there is no such option: deadlines of calls
// notice a vanished peer, a little later.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
