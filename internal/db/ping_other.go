//go:build !linux

package db

import "net"

// isQuiet says no where nobody has looked for a way to see it.
func isQuiet(net.Conn) bool { return false }
