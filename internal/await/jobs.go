package await

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// pollMin is how long after a look a job is looked at again although nothing was
	// heard of it. It doubles up to pollMax while notifications arrive: they may miss
	// what ends in the moment in which the wait begins.
	pollMin = time.Second
	pollMax = 16 * time.Second
	// batchMax is how many jobs one statement is about.
	batchMax = 1000
)

// wait is somebody who waits for a job. Once done is closed, row and err never change.
type wait struct {
	job   *job
	since int // how many looks had been sent before: these do not count
	done  chan struct{}
	row   db.EndReadRow
	err   error
}

// job is one that somebody waits for.
type job struct {
	id int64

	// guarded by the mutex of jobs
	waits      map[*wait]struct{}
	announced  bool // the database was told that somebody waits for it
	lookAt     time.Time
	pollSpan   time.Duration // from the last look to lookAt
	isToLook   bool          // it is among those of toLook
	isAnnounce bool          // it is among those of toAnnounce
}

// jobs are what a session waits for, and what is to be done about each. Its methods
// talk to nobody.
type jobs struct {
	mu sync.Mutex
	// guarded by mu
	byID       map[int64]*job // those that have not ended, as far as is known
	toLook     []int64        // at once; may have some that nobody waits for any more
	toAnnounce []int64        // likewise
	toForget   []int64        // announced, and not waited for any more
	lookCount  int            // how many were sent
	arriving   bool           // notifications arrive
	open       bool           // some job had not ended, or was new: it is worth while to listen
}

// join adds somebody who waits for the job.
func (s *jobs) join(id int64, isNew bool, now time.Time) *wait {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.byID[id]
	if j == nil {
		j = &job{id: id, waits: make(map[*wait]struct{}), pollSpan: pollMin, lookAt: now.Add(pollMin)}
		s.byID[id] = j
		s.announceLocked(j)
	}
	w := &wait{job: j, since: s.lookCount, done: make(chan struct{})}
	j.waits[w] = struct{}{}
	if isNew {
		s.open = true
	} else { // it may have ended long ago
		s.lookLocked(j)
	}
	return w
}

// leave takes away somebody who waited. The last of a job takes it away.
func (s *jobs) leave(w *wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := w.job.waits[w]; !waits {
		return
	}
	if delete(w.job.waits, w); len(w.job.waits) == 0 {
		s.removeLocked(w.job)
	}
}

// answerLocked ends the waits for a job that began before the last look was sent. For
// those that began later the job may have been enqueued or requeued meanwhile.
func (s *jobs) answerLocked(j *job, row db.EndReadRow, err error) {
	for w := range j.waits {
		if w.since < s.lookCount {
			w.row, w.err = row, err
			close(w.done)
			delete(j.waits, w)
		}
	}
	if len(j.waits) == 0 {
		s.removeLocked(j)
	} else {
		s.lookLocked(j)
	}
}

// expect says that somebody is about to wait for a new job.
func (s *jobs) expect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = true
}

// isOpen says whether it is worth while to listen.
func (s *jobs) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

func (s *jobs) removeLocked(j *job) {
	delete(s.byID, j.id)
	if j.announced {
		s.toForget = append(s.toForget, j.id)
	}
}

func (s *jobs) lookLocked(j *job) {
	if !j.isToLook {
		j.isToLook = true
		s.toLook = append(s.toLook, j.id)
	}
}

func (s *jobs) announceLocked(j *job) {
	if !j.isAnnounce {
		j.isAnnounce = true
		s.toAnnounce = append(s.toAnnounce, j.id)
	}
}

// notified takes what a notification says: ids with spaces between them. Anybody may
// send anything. It says whether any of it is waited for.
func (s *jobs) notified(payload string) (some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for text := range strings.FieldsSeq(payload) {
		id, err := strconv.ParseInt(text, 10, 64)
		if j := s.byID[id]; err == nil && j != nil {
			s.lookLocked(j)
			some = true
		}
	}
	return some
}

// setArriving notes whether notifications arrive. When they do anew, all jobs are
// announced, and looked at after that: what has ended before was told to nobody.
func (s *jobs) setArriving(arriving bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arriving = arriving
	if arriving {
		s.announceAllLocked()
		return
	}
	for _, j := range s.byID {
		j.pollSpan = pollMin
		if soon := now.Add(pollMin); j.lookAt.After(soon) {
			j.lookAt = soon
		}
	}
}

// announceAll makes all jobs be announced again: the database has forgotten them.
func (s *jobs) announceAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announceAllLocked()
}

func (s *jobs) announceAllLocked() {
	for _, j := range s.byID {
		j.announced = false
		s.announceLocked(j)
	}
}

// due adds the jobs to those that are to be looked at which nothing was heard of for
// long: those of one statement, longest first. Jobs whose time comes soon are looked at
// with them: an eighth of their span earlier at most. So few statements have many jobs.
//
// Example: 10,000 jobs are looked at each 16 s, 625 of them become due in each second. In
// the first second a statement takes these, and 375 of the next. All of them are due
// together then. After a few rounds there are ten statements of 1,000 jobs in 16 s, and
// not one in each second.
func (s *jobs) due(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*job
	isDue := false
	for _, j := range s.byID {
		if !j.lookAt.After(now.Add(j.pollSpan / 8)) {
			due = append(due, j)
			isDue = isDue || !j.lookAt.After(now)
		}
	}
	if !isDue {
		return
	}
	slices.SortFunc(due, func(a, b *job) int { return cmp.Or(a.lookAt.Compare(b.lookAt), cmp.Compare(a.id, b.id)) })
	for _, j := range due[:min(len(due), batchMax)] {
		s.lookLocked(j)
	}
}

// takeLooks takes the next jobs to look at, up to so many.
func (s *jobs) takeLooks(most int) (ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookCount++
	for len(s.toLook) > 0 && len(ids) < most {
		if j := s.byID[s.toLook[0]]; j != nil && j.isToLook {
			j.isToLook = false
			ids = append(ids, j.id)
		}
		s.toLook = s.toLook[1:]
	}
	return ids
}

// takeAnnouncements takes the next jobs to announce, if notifications arrive, and what
// is to be forgotten with them.
func (s *jobs) takeAnnouncements() (ids, forget []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.arriving {
		return nil, nil
	}
	for len(s.toAnnounce) > 0 && len(ids) < batchMax {
		if j := s.byID[s.toAnnounce[0]]; j != nil && j.isAnnounce {
			j.isAnnounce = false
			ids = append(ids, j.id)
		}
		s.toAnnounce = s.toAnnounce[1:]
	}
	if len(ids) == 0 && len(s.toForget) < batchMax {
		return nil, nil // they can wait for the next announcement
	}
	return ids, s.takeForgetLocked()
}

// takeForget takes what is to be forgotten.
func (s *jobs) takeForget() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeForgetLocked()
}

func (s *jobs) takeForgetLocked() []int64 {
	count := min(len(s.toForget), batchMax)
	forget := s.toForget[:count:count]
	s.toForget = s.toForget[count:]
	for i := 0; i < len(forget); i++ {
		if s.byID[forget[i]] != nil { // somebody waits for it again
			forget = slices.Delete(forget, i, i+1)
			i--
		}
	}
	return forget
}

// looked notes that the jobs were looked at, and these have ended. Of the others, if
// all is false, some may have ended that the answer had no room for.
func (s *jobs) looked(ids []int64, rows []db.EndReadRow, all bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range rows {
		if j := s.byID[row.ID]; j != nil {
			s.answerLocked(j, row, nil)
		}
	}
	for _, id := range ids {
		j := s.byID[id]
		switch {
		case j == nil:
		case !all:
			s.lookLocked(j)
		default:
			s.open = true
			s.laterLocked(j, now)
		}
	}
}

// laterLocked sets when the job is looked at again.
func (s *jobs) laterLocked(j *job, now time.Time) {
	span := pollMin
	if s.arriving && j.announced {
		span = j.pollSpan
		j.pollSpan = min(2*span, pollMax)
	}
	j.lookAt = now.Add(span - rand.N(span/10)) // #nosec G404 -- no secret
}

// notLooked notes that the jobs could not be looked at: with the error they are over,
// and without they are looked at again later.
func (s *jobs) notLooked(ids []int64, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		j := s.byID[id]
		switch {
		case j == nil:
		case err != nil:
			s.answerLocked(j, db.EndReadRow{}, err)
		default:
			j.lookAt = now.Add(pollMin)
		}
	}
}

// isAnnounced notes that the jobs were announced, and are to be looked at.
func (s *jobs) isAnnounced(ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		j := s.byID[id]
		if j == nil { // whose waiter has left meanwhile
			s.toForget = append(s.toForget, id)
			continue
		}
		j.announced = true
		s.lookLocked(j)
	}
}

// notAnnounced notes that the jobs could not be announced, nor the others be forgotten.
func (s *jobs) notAnnounced(ids, forget []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if j := s.byID[id]; j != nil {
			s.announceLocked(j)
		}
	}
	s.toForget = append(s.toForget, forget...)
}
