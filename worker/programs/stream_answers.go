package programs

import (
	"errors"
	"fmt"

	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs/internal/failure"
)

// readLine takes a line of standard output.
func (s *streamProcess) readLine(line []byte) {
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
	case reply.ID != nil && s.answered && *reply.ID == s.last && s.last != job.run.ID():
		s.breakLocked(worker.Release(fmt.Errorf("handler process answered twice for job %d, and was killed", s.last)))
	case reply.ID != nil && *reply.ID != job.run.ID():
		s.breakLocked(fmt.Errorf("handler process answered for job %d while it had job %d", *reply.ID, job.run.ID()))
	default:
		job.lines++
	}
	broken := s.broken != nil
	s.mu.Unlock()
	if broken {
		return
	}
	s.handleMessage(reply.Message)
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
	s.breakLocked(fmt.Errorf("handler process was killed: line %d of its answer cannot be understood: %w"+
		" (standard output is for messages to jobq: write anything else to standard error)", number, err))
}

// finish hands over the end of the job. From here on the process has none.
func (s *streamProcess) finish(reply subproc.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.job != nil {
		s.answered, s.last = true, s.job.run.ID()
		s.job.reply <- reply // has room: a job is finished once
		s.job = nil
	}
}

// breakLocked kills the process: it is no longer clear to which job its answers belong.
func (s *streamProcess) breakLocked(reason error) {
	if s.broken == nil {
		s.broken = reason
	}
	s.kill()
}

// handleMessage takes a message about the job.
func (s *streamProcess) handleMessage(message subproc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.job != nil {
		s.job.take(s.job.stop.held, message)
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

// verdict is what the handler returns for the reply that has ended the job.
func (s *streamProcess) verdict(job *streamJob, reply subproc.Reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err, problem := endOf(reply), job.problem()
	switch {
	case err == nil:
		return problem
	case job.stop.asked.Err() != nil: // why it was stopped decides, not what it answers then
		return errors.New(err.Error())
	case problem != nil && (reply.Snooze != nil || reply.Cancel != nil): // it may have been a checkpoint
		return problem
	}
	return err
}

// endOf is what the handler returns for a reply that ends the job, whatever else
// the process has said.
func endOf(reply subproc.Reply) error {
	text := "the handler gave no reason"
	if reply.Error != nil && *reply.Error != "" {
		text = failure.OfReason("", *reply.Error)
	}
	switch {
	case reply.Discard:
		return worker.Discard(errors.New(text))
	case reply.Retry != nil:
		return worker.Retry(*reply.Retry, errors.New(text))
	case reply.Error != nil:
		return errors.New(text)
	case reply.Cancel != nil:
		return worker.Cancel(errors.New(*reply.Cancel))
	case reply.Snooze != nil:
		return worker.Snooze(*reply.Snooze)
	}
	return nil
}
