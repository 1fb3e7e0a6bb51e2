package postgres

import "syscall"

// dieWithParent makes the kernel send the signal when the thread that started
// the program ends: also after kill -9 of jobq.
func dieWithParent(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }
