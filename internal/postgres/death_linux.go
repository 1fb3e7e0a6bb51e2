package postgres

import "syscall"

// dieWithParent makes the kernel interrupt the server, which then shuts down,
// when the thread that started it ends: also after kill -9.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }
