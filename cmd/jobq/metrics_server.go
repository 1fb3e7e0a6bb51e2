package main

import (
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// metricsConnsMax bounds the connections to the metrics, which need descriptors that the
	// programs of a worker need too.
	metricsConnsMax = 64
	// How long a scraper may take to ask and to read the answer, and how long its connection may
	// wait for the next scrape.
	metricsAskTimeout    = 5 * time.Second
	metricsAnswerTimeout = time.Minute
	metricsIdleTimeout   = 2 * time.Minute
)

// limitedServer is a server that strangers cannot fill: whoever connects takes the place of the
// connection that has had nothing to do for longest.
func limitedServer(handler http.Handler) *http.Server {
	conns := &serverConns{waiting: make(map[net.Conn]time.Time)}
	return &http.Server{
		Handler: handler, ConnState: conns.note,
		ReadTimeout: metricsAskTimeout, WriteTimeout: metricsAnswerTimeout, IdleTimeout: metricsIdleTimeout,
	}
}

// serverConns are the connections of a server.
type serverConns struct {
	mu sync.Mutex
	// guarded by mu
	waiting map[net.Conn]time.Time // since when; zero for one that is being answered
}

// note is told by the server of each change, of a new connection before it accepts another one.
func (s *serverConns) note(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(s.waiting) >= metricsConnsMax && !s.makeRoomLocked() {
			_ = conn.Close() // all the others are being answered
			return
		}
		s.waiting[conn] = time.Now()
	case http.StateActive:
		if _, known := s.waiting[conn]; known {
			s.waiting[conn] = time.Time{}
		}
	case http.StateIdle:
		if _, known := s.waiting[conn]; known {
			s.waiting[conn] = time.Now()
		}
	case http.StateClosed, http.StateHijacked:
		delete(s.waiting, conn)
	}
}

// makeRoomLocked closes the connection that waits for longest, if one does.
func (s *serverConns) makeRoomLocked() bool {
	var oldest net.Conn
	for conn, since := range s.waiting {
		if !since.IsZero() && (oldest == nil || since.Before(s.waiting[oldest])) {
			oldest = conn
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.waiting, oldest)
	_ = oldest.Close() // the server notices, and forgets it
	return true
}
