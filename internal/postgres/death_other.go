//go:build !linux

package postgres

import "syscall"

// dieWithParent does nothing where the kernel has nothing for it: a server
// whose jobq was killed with -9 runs on, and the next start in its folder, or
// the next sweep of temporary ones, finds and stops it.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
