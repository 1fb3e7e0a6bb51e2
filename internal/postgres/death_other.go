//go:build !linux

package postgres

import "syscall"

// dieWithParent does nothing where the kernel has nothing for it: a server
// whose jobq was killed with -9 goes on, and the next start finds it.
func dieWithParent(*syscall.SysProcAttr) {}
