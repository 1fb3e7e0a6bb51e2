package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/subproc"
)

// streamReadPatience is how long a process that has answered may take to read
// the rest of its job.
const streamReadPatience = 3 * time.Second

// errUnread says that a process has ended between two jobs: it has not begun to
// read the one that it was given last.
var errUnread = errors.New("handler process ended before it read the job")

// streamProcess is a process that runs one job after the other.
type streamProcess struct {
	output  *subproc.Tail        // of standard error
	stop    func()               // asks it to end, and kills it after the grace
	killed  chan struct{}        // closed to kill it at once
	kill    func()               // does so
	ready   chan struct{}        // closed when stdin is there
	program subproc.Conversation // after ready
	ended   chan struct{}        // closed when all of it is gone
	result  subproc.Result       // after ended
	failure error                // likewise

	// run is that of the job, for those who must not wait for mu, which is held
	// while a checkpoint is stored.
	run atomic.Pointer[Run]

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
	said
	lines int // that the process has said of it
	leash *leash
	reply chan subproc.Reply // the end, once
}

func newStreamProcess() *streamProcess {
	killed := make(chan struct{})
	return &streamProcess{
		output: subproc.NewTail(outputBytesMax), ready: make(chan struct{}), ended: make(chan struct{}),
		killed: killed, kill: sync.OnceFunc(func() { close(killed) }),
	}
}

// talk reads what the process says.
func (s *streamProcess) talk(program subproc.Conversation) {
	s.program = program
	close(s.ready)
	subproc.ReadLines(program.Stdout, func(_ int, line []byte) { s.heard(line) }, func(_ int, err error) { s.unreadable(err) })
	s.mu.Lock()
	s.silent = true
	s.mu.Unlock()
	s.stop() // one that cannot answer is of no use
}

// work has the process run a job, and returns what the handler returns.
func (s *streamProcess) work(ctx context.Context, r *Run, lostTerminates bool) error {
	line, err := r.message()
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if s.hasAnswered() { // else the first job's output begins with the start
		s.program.Settle() // what was written since the job before is nobody's
		s.output.Reset()
	}
	leash := newLeash(ctx, r, lostTerminates)
	defer leash.drop()
	job := &streamJob{said: said{run: r}, leash: leash, reply: make(chan subproc.Reply, 1)}
	s.setJob(job)
	s.run.Store(r)
	defer s.setJob(nil)
	defer s.run.Store(nil)
	live := r.showOutput(s.output)
	defer func() {
		r.live.Store(nil)
		live.flushRest(ctx)
		r.keepOutput(s.output.Bytes())
	}()
	// Also while the process does not read: then the write below fails with it.
	defer context.AfterFunc(leash.ctx, s.stop)()
	go s.obey(leash)
	s.program.Arm()
	written := make(chan int, 1)
	go func() {
		count, _ := s.program.Stdin.Write(line) // broken: the process ends, which is seen next
		written <- count
	}()
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

// awaitRead waits until the process has read all of the job that it has
// answered. One that does not is killed: the next job would come out of step.
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
	run := job.run
	if s.result.Expired { // the worker was stopped: the lease is lost, and nobody has failed
		run.worker.keeper.held.Lose(&run.hold)
		return ErrLeaseLost
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
	return errors.Join(s.deathError(), job.problem())
}

// deadline is that of the job's lease; without a job there is none.
func (s *streamProcess) deadline() time.Duration {
	run := s.run.Load()
	if run == nil {
		return 0
	}
	return run.deadline()
}

// obey kills the process when the leash says so, until that is dropped or the
// process has ended.
func (s *streamProcess) obey(l *leash) {
	select {
	case <-l.kill:
		s.kill()
	case <-l.dropped:
	case <-s.ended:
	}
}

func (s *streamProcess) setJob(job *streamJob) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.job = job
}

func (s *streamProcess) verdict(job *streamJob, reply subproc.Reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err, problem := verdictOf(reply), job.problem()
	switch {
	case err == nil:
		return problem
	case job.leash.ctx.Err() != nil: // why it was stopped decides, not what it answers then
		return errors.New(err.Error())
	case problem != nil && (reply.Snooze != nil || reply.Cancel != nil): // it may have been a checkpoint
		return problem
	}
	return err
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

// heard takes a line of standard output.
func (s *streamProcess) heard(line []byte) {
	reply, err := subproc.ParseReply(line)
	if err != nil {
		s.unreadable(err)
		return
	}
	if reply.Ends() {
		s.program.Settle() // what it has written before is the job's
	}
	s.mu.Lock()
	job := s.job
	switch {
	case job == nil:
		s.breakLocked(fmt.Errorf("handler process spoke without a job: %.80q", line))
	case reply.ID != nil && s.answered && *reply.ID == s.last && s.last != job.run.row.ID:
		s.breakLocked(&blamelessError{err: fmt.Errorf("handler process answered twice for job %d, and was killed", s.last)})
	case reply.ID != nil && *reply.ID != job.run.row.ID:
		s.breakLocked(fmt.Errorf("handler process answered for job %d while it had job %d", *reply.ID, job.run.row.ID))
	default:
		job.lines++
	}
	broken := s.broken != nil
	s.mu.Unlock()
	if broken {
		return
	}
	s.hear(reply.Message)
	if reply.Ends() {
		s.finish(reply)
	}
}

// unreadable gives the process up for a line that cannot be understood: it may
// have been the answer, and another one would never come.
func (s *streamProcess) unreadable(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := 1
	if s.job != nil {
		number += s.job.lines
	}
	s.breakLocked(fmt.Errorf("handler process was killed: line %d of its answer cannot be understood: %w", number, err))
}

// finish hands over the end of the job. From here on the process has none.
func (s *streamProcess) finish(reply subproc.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.job != nil {
		s.answered, s.last = true, s.job.run.row.ID
		s.job.reply <- reply // has room: a job is finished once
		s.job = nil
	}
}

// breakLocked gives the process up: what it says cannot be told apart any more.
func (s *streamProcess) breakLocked(reason error) {
	if s.broken == nil {
		s.broken = reason
	}
	s.kill()
}

// hear takes a message about the job.
func (s *streamProcess) hear(message subproc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.job != nil {
		s.job.hear(s.job.leash.held, message)
	}
}

// hearOutside is told of messages on descriptor 3, which no handler that is
// kept may use: what is read there has no order with standard output, and could
// be another job's.
func (s *streamProcess) hearOutside(subproc.Message) { s.failOutside(nil) }

func (s *streamProcess) failOutside(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breakLocked(errors.New("handler process wrote to file descriptor 3: messages belong on its standard output"))
}
