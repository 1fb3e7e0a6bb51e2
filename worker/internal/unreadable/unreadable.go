// Package unreadable decides what becomes of jobs that a worker cannot decode. Each such job
// waits, without using an attempt. If another worker has the key, a kind of which this one can
// read no job is not claimed for a while, so that the jobs go to the other. Then one job tries.
// A key that nobody has pauses nothing: anybody who may add jobs can invent one. For example,
// with jobs of kind "charge" and a key k9 that this worker lacks, and that another one has:
//
//	t=0 s    jobs 41 to 45 are to run again after 30 s; one warning
//	t=0 s    45 was the fifth in a row: "charge" is not claimed for 30 s, and the
//	         jobs of it in hand go back to their places at once
//	t=30 s   job 46 tries, and is to run again after 30 s; no claim for 30 s
//	t=60 s   job 47 tries, and is to run again after 1 minute; no claim for 1 minute
//	t=1 h    the same with 10 minutes, the longest; there is a warning every 10 minutes
//	t=2 h    job 60 can be read: "charge" is claimed again without pauses
//
// From then on each pause of "charge" takes 30 s, so that jobs of a lost key do not delay
// jobs that can be read for long.
package unreadable

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DelayMin and delayMax bound two times: how long a job waits, which is as long as values of
	// its key have been unreadable so far; and how long a kind is not claimed, which is as long as
	// jobs of the kind have been.
	DelayMin = 30 * time.Second
	delayMax = 10 * time.Minute
	// rowMax is how many jobs in a row must be for others before their kind is not claimed.
	rowMax = 5
	// warnEvery is how often there is a warning of a key.
	warnEvery = 10 * time.Minute
	// keysMax bounds the keys that are remembered: their names come from rows.
	keysMax = 1000
)

// Memory is what a worker could not read so far. The zero value is ready to use.
type Memory struct {
	some atomic.Bool // unread is above 0, which it is not most of the time

	mu sync.Mutex
	// guarded by mu
	kinds  map[string]*kind
	keys   map[string]*key
	unread int // how many of both cannot be read
}

// kind is one of which a job could not be read.
type kind struct {
	since   time.Time // zero once a job could be read
	until   time.Time // not claimed before
	inRow   int       // jobs that only others could read, one after the other
	wasRead bool      // a job could be read since the first that could not
}

// key is one of which a value could not be read.
type key struct {
	since    time.Time // zero once a value could be read
	warnedAt time.Time
}

// Verdict is what becomes of a job that cannot be read.
type Verdict struct {
	// ToOthers says that the job goes back to its place at once, and nothing is kept of the run:
	// its kind was not to be claimed. Nothing else is set then.
	ToOthers bool
	Delay    time.Duration // how long the job waits
	Pause    time.Duration // its kind is not claimed for so long from now; 0 if it is claimed
	Warn     bool          // nothing was said of the key lately
}

// Failed notes that a job of the kind cannot be read, because of the key: "" if that is not
// known. others says that another worker has the key; else the verdict has neither ToOthers nor a Pause.
func (m *Memory) Failed(kindName, keyName string, others bool, now time.Time) Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !others {
		return m.failedKeyLocked(keyName, now)
	}
	ofKind := m.kinds[kindName]
	if ofKind != nil && now.Before(ofKind.until) {
		return Verdict{ToOthers: true}
	}
	if ofKind == nil {
		ofKind = new(kind)
		if m.kinds == nil {
			m.kinds = make(map[string]*kind)
		}
		m.kinds[kindName] = ofKind
	}
	if ofKind.since.IsZero() {
		ofKind.since = now
		m.addUnreadLocked(1)
	}
	verdict := m.failedKeyLocked(keyName, now)
	if ofKind.inRow++; ofKind.inRow >= rowMax {
		verdict.Pause = delay(now.Sub(ofKind.since))
		if ofKind.wasRead {
			verdict.Pause = DelayMin
		}
		ofKind.until = now.Add(verdict.Pause)
	}
	return verdict
}

func (m *Memory) failedKeyLocked(keyName string, now time.Time) Verdict {
	ofKey := m.keyLocked(keyName)
	if ofKey.since.IsZero() {
		ofKey.since = now
		m.addUnreadLocked(1)
	}
	verdict := Verdict{Delay: delay(now.Sub(ofKey.since)), Warn: now.Sub(ofKey.warnedAt) >= warnEvery}
	if verdict.Warn {
		ofKey.warnedAt = now
	}
	return verdict
}

func delay(sinceFirst time.Duration) time.Duration { return min(max(sinceFirst, DelayMin), delayMax) }

// keyLocked is the key of that name. If keysMax others are known, a new key replaces the one whose
// warning is the oldest, and takes over the time of that warning. So there are at most keysMax
// warnings in warnEvery.
func (m *Memory) keyLocked(name string) *key {
	if known := m.keys[name]; known != nil {
		return known
	}
	added := new(key)
	if len(m.keys) >= keysMax {
		oldest := ""
		for each, known := range m.keys {
			if added.warnedAt.IsZero() || known.warnedAt.Before(added.warnedAt) {
				oldest, added.warnedAt = each, known.warnedAt
			}
		}
		if !m.keys[oldest].since.IsZero() {
			m.addUnreadLocked(-1)
		}
		delete(m.keys, oldest)
	}
	if m.keys == nil {
		m.keys = make(map[string]*key)
	}
	m.keys[name] = added
	return added
}

func (m *Memory) addUnreadLocked(count int) {
	m.unread += count
	m.some.Store(m.unread > 0)
}

// HasSome says whether a kind or a key cannot be read. Only then Read has something to do.
func (m *Memory) HasSome() bool { return m.some.Load() }

// Read notes that a job of the kind could be read, with a value of the key. It says whether the
// kind was not claimed until now.
func (m *Memory) Read(kindName, keyName string, now time.Time) (resumed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ofKind := m.kinds[kindName]; ofKind != nil && !ofKind.since.IsZero() {
		resumed = now.Before(ofKind.until)
		*ofKind = kind{wasRead: true}
		m.addUnreadLocked(-1)
	}
	if ofKey := m.keys[keyName]; ofKey != nil && !ofKey.since.IsZero() {
		ofKey.since = time.Time{}
		m.addUnreadLocked(-1)
	}
	return resumed
}

// Claimable returns those of the kinds whose jobs may be claimed now: the slice itself when
// these are all.
func (m *Memory) Claimable(kinds []string, now time.Time) []string {
	if !m.some.Load() {
		return kinds
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	isPaused := func(name string) bool { return m.kinds[name] != nil && now.Before(m.kinds[name].until) }
	if !slices.ContainsFunc(kinds, isPaused) {
		return kinds
	}
	return slices.DeleteFunc(slices.Clone(kinds), isPaused)
}
