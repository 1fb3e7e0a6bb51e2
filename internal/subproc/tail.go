package subproc

import "sync"

// tail keeps the end of what is written to it, in bounded memory.
type tail struct {
	mu sync.Mutex
	// guarded by mu
	ring  []byte // its capacity is the limit
	start int    // of the oldest byte, once the ring is full
	limit int
}

func newTail(limit int) *tail { return &tail{limit: limit} }

func (t *tail) add(chunk []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(chunk) >= t.limit {
		t.ring, t.start = append(t.ring[:0], chunk[len(chunk)-t.limit:]...), 0
		return
	}
	if room := t.limit - len(t.ring); room > 0 {
		fits := min(room, len(chunk))
		t.ring = append(t.ring, chunk[:fits]...)
		chunk = chunk[fits:]
	}
	for len(chunk) > 0 {
		copied := copy(t.ring[t.start:], chunk)
		t.start = (t.start + copied) % t.limit
		chunk = chunk[copied:]
	}
}

func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(append([]byte{}, t.ring[t.start:]...), t.ring[:t.start]...)
}
