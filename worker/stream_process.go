package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/subproc"
)

// streamProcess is a process that runs one job after the other.
type streamProcess struct {
	output  *subproc.Tail  // of standard error
	stop    func()         // asks it to end, and kills it after the grace
	killed  chan struct{}  // closed to kill it at once
	kill    func()         // does so
	ready   chan struct{}  // closed when stdin is there
	stdin   io.WriteCloser // after ready
	arm     func()         // likewise: tells the shim the deadline of a new job
	ended   chan struct{}  // closed when all of it is gone
	result  subproc.Result // after ended
	failure error          // likewise

	// run is that of the job, for those who must not wait for mu, which is held
	// while a checkpoint is stored.
	run atomic.Pointer[Run]

	mu sync.Mutex
	// guarded by mu
	job    *streamJob // that it has now
	broken error      // it has said what no handler may say
	silent bool       // its standard output has ended
}

// streamJob is the job that a process has.
type streamJob struct {
	said
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
func (s *streamProcess) talk(stdin io.WriteCloser, stdout io.Reader, arm func()) {
	s.stdin, s.arm = stdin, arm
	close(s.ready)
	subproc.ReadLines(stdout, s.heard, s.complain)
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
	s.output.Reset()
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
	s.arm()
	_, _ = s.stdin.Write(append(line, '\n')) // broken: the process ends, which is seen next
	select {
	case reply := <-job.reply:
		return s.verdict(job, reply)
	case <-s.ended:
	}
	select {
	case reply := <-job.reply: // it has answered and then ended
		return s.verdict(job, reply)
	default:
	}
	if s.result.Expired { // the worker was stopped: the lease is lost, and nobody has failed
		r.worker.keeper.lose(&r.lease)
		return ErrLeaseLost
	}
	if broken := s.brokenBy(); broken != nil {
		return broken
	}
	s.mu.Lock()
	defer s.mu.Unlock()
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

func (s *streamProcess) brokenBy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
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
		s.complain(err)
		return
	}
	s.mu.Lock()
	job := s.job
	switch {
	case job == nil:
		s.breakLocked(fmt.Errorf("handler process spoke without a job: %.80q", line))
	case reply.ID != nil && *reply.ID != job.run.row.ID:
		s.breakLocked(fmt.Errorf("handler process answered for job %d while it had job %d", *reply.ID, job.run.row.ID))
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

// finish hands over the end of the job. From here on the process has none.
func (s *streamProcess) finish(reply subproc.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.job != nil {
		s.job.reply <- reply // has room: a job is finished once
		s.job = nil
	}
}

// breakLocked gives the process up: what it says cannot be told apart any more.
func (s *streamProcess) breakLocked(reason error) {
	s.broken = reason
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

func (s *streamProcess) complain(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.job != nil {
		s.job.complain(err)
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
