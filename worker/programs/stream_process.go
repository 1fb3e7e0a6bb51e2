package programs

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs/internal/breaker"
	"github.com/jobq-dev/jobq/worker/programs/internal/failure"
)

// streamReadPatience is how long a process that has answered may take to read
// the rest of its job.
const streamReadPatience = 3 * time.Second

// errUnread says that a process has ended between two jobs: it has not begun to
// read the one that it was given last.
var errUnread = errors.New("handler process ended before it read the job")

// notBegun says how a process has ended before it has read a byte of its first job.
type notBegun string

func (n notBegun) Error() string { return string(n) }

// beginEvery is how often is looked whether a process reads its job, where others wait for that.
const beginEvery = 20 * time.Millisecond

// streamProcess is a process that runs one job after the other.
type streamProcess struct {
	output  *subproc.Tail        // of standard error
	stop    func()               // asks it to end, and kills it after the grace
	killed  chan struct{}        // closed to kill it at once
	kill    func()               // closes killed
	ready   chan struct{}        // closed when stdin is there
	program subproc.Conversation // after ready
	ended   chan struct{}        // closed when all of it is gone
	result  subproc.Result       // after ended
	failure error                // likewise
	try     *breaker.Try         // which started it

	// stopper is that of the job, for those who must not wait for mu, which is held
	// while a checkpoint is stored.
	stopper atomic.Pointer[stopper]
	renew   chan struct{} // its deadline is to be looked at

	mu sync.Mutex
	// guarded by mu
	job      *streamJob // that it has now
	broken   error      // it has said what no handler may say
	silent   bool       // its standard output has ended
	answered bool       // it has ended a job
	last     int64      // the id of that
}

// streamJob is the job that a process has.
type streamJob struct {
	messages
	lines int // that the process has said of it
	stop  *stopper
	reply chan subproc.Reply // the end, once
}

func newStreamProcess() *streamProcess {
	killed := make(chan struct{})
	return &streamProcess{
		output: subproc.NewTail(outputBytesMax), ready: make(chan struct{}), ended: make(chan struct{}), renew: make(chan struct{}, 1),
		killed: killed, kill: sync.OnceFunc(func() { close(killed) }),
	}
}

// talk reads what the process says.
func (s *streamProcess) talk(program subproc.Conversation) {
	s.program = program
	close(s.ready)
	subproc.ReadLines(program.Stdout, func(_ int, line []byte) { s.readLine(line) }, func(_ int, err error) { s.unreadable(err) })
	s.mu.Lock()
	s.silent = true
	s.mu.Unlock()
	s.stop() // one that cannot answer is of no use
}

// work has the process run a job, which is the line, and returns what the handler
// returns.
func (s *streamProcess) work(ctx context.Context, run worker.ExternalRun, line []byte, command Command) error {
	line = append(line, '\n')
	if s.hasAnswered() { // else the first job's output begins with the start
		s.program.Settle() // what was written since the job before is nobody's
		s.output.Reset()
	}
	stop := newStopper(ctx, run, command, s.renew, func(error) {})
	defer stop.end()
	job := &streamJob{messages: messages{run: run}, stop: stop, reply: make(chan subproc.Reply, 1)}
	s.setJob(job)
	s.stopper.Store(stop)
	defer s.setJob(nil)
	defer s.stopper.Store(nil)
	endOutput := run.ShowOutput(s.output)
	defer func() {
		endOutput(ctx)
		run.KeepOutput(s.output.Bytes())
	}()
	// This also works while the process does not read: when it ends, the write below fails.
	defer context.AfterFunc(stop.asked, s.stop)()
	go s.obey(stop)
	s.program.Arm()
	written, isWritten := make(chan int, 1), make(chan struct{})
	go func() {
		count, _ := s.program.Stdin.Write(line) // broken: the process ends, which is seen next
		written <- count
		close(isWritten)
	}()
	if s.try.IsSole() {
		go s.awaitBegin(isWritten, len(line), stop)
	}
	select {
	case reply := <-job.reply:
		s.awaitRead(written)
		return s.verdict(job, reply)
	case <-s.ended:
	}
	select {
	case reply := <-job.reply: // it has answered and then ended
		return s.verdict(job, reply)
	default:
	}
	return s.death(job, <-written)
}

// awaitBegin lets the other jobs of the kind try as soon as the process has begun to read this one,
// which may run for long.
func (s *streamProcess) awaitBegin(isWritten <-chan struct{}, length int, stop *stopper) {
	select {
	case <-isWritten:
	case <-s.ended: // perhaps before it has read
		return
	}
	look := time.NewTicker(beginEvery)
	defer look.Stop()
	begun := time.Now()
	for left := length; left >= length || left < 0 && time.Since(begun) < presumeAfter; left = s.program.Unread() { // < 0: nobody can see it
		select {
		case <-look.C:
		case <-stop.ended:
			return
		case <-s.ended:
			return
		}
	}
	s.try.Reached()
}

// awaitRead waits until the process has read all of the job that it has answered. If it does
// not, it is killed: it would take the rest for the beginning of the next job.
func (s *streamProcess) awaitRead(written <-chan int) {
	select {
	case <-written:
		return
	default:
	}
	patience := time.NewTimer(streamReadPatience)
	defer patience.Stop()
	select {
	case <-written:
	case <-s.ended:
	case <-patience.C:
		s.mu.Lock()
		s.breakLocked(errors.New("handler process answered and did not read all of its job"))
		s.mu.Unlock()
	}
}

// death is what the handler returns when the process has ended without an
// answer, after so many bytes of the job were written.
func (s *streamProcess) death(job *streamJob, written int) error {
	if s.result.Expired { // the worker was stopped: the lease is lost, and nobody has failed
		return job.run.LoseLease()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.broken != nil:
		return s.broken
	case s.answered && s.result.StdinLeft >= written:
		return errUnread
	}
	s.result.Stderr = s.output.Bytes() // of this job, not of those before
	if job.lines == 0 && !s.answered && s.result.StdinLeft >= written {
		return notBegun(failure.OfProgram("handler process ended before it read a job, ", s.result))
	}
	return errors.Join(s.deathError(), job.problem())
}

// deadline is that of the job's lease; without a job there is none.
func (s *streamProcess) deadline() time.Duration {
	stop := s.stopper.Load()
	if stop == nil {
		return 0
	}
	return stop.deadline()
}

// obey kills the process when the stopper says so, until the job or the process
// has ended.
func (s *streamProcess) obey(stop *stopper) {
	select {
	case <-stop.kill:
		s.kill()
	case <-stop.ended:
	case <-s.ended:
	}
}

func (s *streamProcess) setJob(job *streamJob) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.job = job
}

func (s *streamProcess) hasAnswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// isIdle says whether the process can take a job.
func (s *streamProcess) isIdle() bool {
	select {
	case <-s.ended:
		return false
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.job == nil && s.broken == nil && !s.silent
}
