//go:build !linux

package listen

import "syscall"

// setUserTimeout does nothing where there is no such option: the ping notices
// a vanished peer, a little later.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
