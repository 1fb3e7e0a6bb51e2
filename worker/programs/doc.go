// Package programs runs the jobs of a worker with programs of any language.
//
// There are four ways, each with its contract in docs/subprocess.md:
// HandleCommand starts a program for each job, HandleStream keeps processes that
// take job after job, HandleHTTP posts jobs to a server, and HandleExec runs what
// the job itself names.
//
//	func main() {
//		programs.MaybeRunShim()
//		…
//		w, err := worker.New(client, nil)
//		…
//		err = programs.New(w).HandleCommand("resize", programs.Command{Args: []string{"./resize.sh"}}, nil)
//		…
//		err = w.Run(ctx)
//	}
//
// A Go handler that ignores its context cannot be killed; a program can. When its
// lease is lost, it is dead before the lease ends by the database's clock, with
// all that it has started, also when this process is stopped, hangs or is killed.
//
// For example, with a lease of 60 s the kill margin is 5 s. A worker that cannot
// extend the lease gives it up at 55 s and kills the program. Were the worker
// itself stopped, the program's supervisor, another process, would kill it at
// 57.5 s. At 60 s another worker may run the job.
//
// A handler that cannot be reached, because its server is down or the machine
// has no room for a process, costs no job an attempt: jobs of the kind wait until
// it is back.
package programs
