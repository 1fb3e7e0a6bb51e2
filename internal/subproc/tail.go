package subproc

import "sync"

// Tail keeps the end of what is written to it, in bounded memory. It may be
// read while the program writes.
type Tail struct {
	mu sync.Mutex
	// guarded by mu
	ring    []byte
	start   int // of the oldest byte, once the ring is full
	limit   int
	written int64
}

// NewTail returns one that keeps this many bytes.
func NewTail(limit int) *Tail { return &Tail{limit: limit} }

func (t *Tail) add(chunk []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written += int64(len(chunk))
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

// Bytes returns what is kept.
func (t *Tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytesLocked()
}

func (t *Tail) bytesLocked() []byte {
	return append(append([]byte{}, t.ring[t.start:]...), t.ring[:t.start]...)
}

// Written is how many bytes were written since the start, or the last Reset.
func (t *Tail) Written() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written
}

// Since returns what was written after that many bytes, or as much of its end
// as is kept, and how many had been written before it.
func (t *Tail) Since(from int64) (content []byte, begin int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.bytesLocked()
	begin = min(max(from, t.written-int64(len(kept))), t.written)
	return kept[int64(len(kept))-(t.written-begin):], begin
}

// Reset forgets everything.
func (t *Tail) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ring, t.start, t.written = t.ring[:0], 0, 0
}
