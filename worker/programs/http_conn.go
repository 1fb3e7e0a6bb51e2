package programs

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

const (
	// resetPatience is how long is waited for the reset that says that a request was not read: a
	// round trip, in a network of one's own.
	resetPatience = 100 * time.Millisecond
	resetLook     = 2 * time.Millisecond
)

// watchedConn is a connection that knows whether its server has closed it without having read what
// was written last. The server's system tells that with a reset, which may come after the end of the
// connection:
//
//	t=0    the server closes a connection that has had nothing to do for a minute
//	t=0.1  the worker, which does not know it yet, writes a request
//	t=0.2  the worker reads the end of the connection, as after a server that has read the request and died
//	t=0.3  the reset comes: nobody has read the request
type watchedConn struct {
	net.Conn

	mu sync.Mutex
	// guarded by mu
	asked  bool // something was written since the last read
	ended  bool // the end was read when nothing was asked
	unread bool // what was written last was not read
}

// watchDials makes a transport's connections watched ones.
func watchDials(transport *http.Transport) {
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &watchedConn{Conn: conn}, nil
	}
}

// Write notes that something is asked.
func (c *watchedConn) Write(content []byte) (int, error) {
	c.mu.Lock()
	c.asked = true
	c.unread = c.unread || c.ended
	c.mu.Unlock()
	return c.Conn.Write(content)
}

// Read finds out, at the end of the connection, whether what was asked was read.
func (c *watchedConn) Read(target []byte) (int, error) {
	count, err := c.Conn.Read(target)
	c.mu.Lock()
	asked := c.asked
	if count > 0 {
		c.asked = false
	}
	c.ended = c.ended || err != nil && !asked
	c.mu.Unlock()
	if count == 0 && errors.Is(err, io.EOF) && asked && c.awaitReset() {
		c.mu.Lock()
		c.unread = true
		c.mu.Unlock()
	}
	return count, err
}

// awaitReset waits until the reset is there, for a while.
func (c *watchedConn) awaitReset() bool {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false // closed from here
	}
	for waited := time.Duration(0); waited < resetPatience; waited += resetLook {
		reset := 0
		err := raw.Control(func(descriptor uintptr) {
			reset, _ = syscall.GetsockoptInt(int(descriptor), syscall.SOL_SOCKET, syscall.SO_ERROR) // #nosec G115 -- descriptors are small
		})
		if err != nil || reset != 0 {
			return err == nil
		}
		<-time.After(resetLook)
	}
	return false
}

// isUnread says whether the server has closed the connection without reading what was written last.
func (c *watchedConn) isUnread() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unread
}

// watchedIn returns the watched connection that a transport speaks on; nil for another.
func watchedIn(conn net.Conn) *watchedConn {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = secure.NetConn()
	}
	watched, _ := conn.(*watchedConn)
	return watched
}
