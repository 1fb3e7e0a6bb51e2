package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// proxy stands between one process and the server. Its modes are for all its
// connections or, chosen by a word of the start-up message such as an
// application's name, for some.
type proxy struct {
	listener net.Listener
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu sync.Mutex
	// guarded by mu
	target  string // the server's unix socket
	links   map[*link]bool
	hold    func(start []byte) bool // nil: nothing is held
	muffled bool                    // only what the server says is held
	refuses bool
	delay   time.Duration
	cutAt   int // bytes from the server to a connection, after which it is cut; 0: never
	freed   chan struct{}
	carried int // bytes that were held and delivered late
}

// link is one connection through the proxy.
type link struct {
	proxy          *proxy
	client, server net.Conn
	start          []byte // the start-up message
	// stuck holds this link for good, until its own release.
	stuck chan struct{}
}

func startProxy(target string) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &proxy{listener: listener, target: target, links: make(map[*link]bool), freed: make(chan struct{}), stop: cancel}
	p.running.Go(func() { p.accept(ctx) })
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		refuses := p.refuses
		p.mu.Unlock()
		if refuses {
			_ = client.Close()
			continue
		}
		p.running.Go(func() { p.serve(ctx, client) })
	}
}

// serve carries bytes both ways until either side ends.
func (p *proxy) serve(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	start := make([]byte, 1024)
	n, err := client.Read(start)
	if err != nil {
		return
	}
	l := &link{proxy: p, client: client, start: start[:n]}
	p.await(ctx, l, false) // a connection that is held does not even begin
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	if l.server, err = (&net.Dialer{}).DialContext(ctx, "unix", target); err != nil {
		return
	}
	defer func() { _ = l.server.Close() }()
	p.mu.Lock()
	p.links[l] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	unblock := context.AfterFunc(ctx, func() { _, _ = client.Close(), l.server.Close() })
	defer unblock()
	if _, err := l.server.Write(l.start); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		p.carry(ctx, l, l.server, client, false)
		if half, ok := l.server.(*net.UnixConn); ok {
			_ = half.CloseWrite() // what came before it is still worked on
		}
	})
	both.Go(func() {
		p.carry(ctx, l, client, l.server, true)
		_ = client.Close()
	})
	both.Wait()
}

// carry copies one direction, as the mode says.
func (p *proxy) carry(ctx context.Context, l *link, to io.Writer, from io.Reader, answers bool) {
	buffer := make([]byte, 16<<10)
	total := 0
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if p.await(ctx, l, answers) {
				p.mu.Lock()
				p.carried += n
				p.mu.Unlock()
			}
			p.mu.Lock()
			delay, cutAt := p.delay, p.cutAt
			p.mu.Unlock()
			if delay > 0 {
				pause(ctx, delay)
			}
			total += n
			if answers && cutAt > 0 && total > cutAt {
				reset(l.client)
				_ = l.server.Close()
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// await blocks for as long as this direction of the link is held, and says whether
// it was.
func (p *proxy) await(ctx context.Context, l *link, answers bool) (held bool) {
	for {
		p.mu.Lock()
		stuck, freed := l.stuck, p.freed
		holds := stuck == nil && p.hold != nil && p.hold(l.start) && (answers || !p.muffled)
		p.mu.Unlock()
		switch {
		case stuck != nil:
			freed = stuck
		case !holds:
			return held
		}
		held = true
		select {
		case <-freed:
		case <-ctx.Done():
			return held
		}
	}
}

func everything([]byte) bool { return true }

// withWord chooses connections whose start-up message has the word.
func withWord(word string) func([]byte) bool {
	return func(start []byte) bool { return bytes.Contains(start, []byte(word)) }
}

// blackhole keeps the chosen connections open and carries nothing.
func (p *proxy) blackhole(chosen func([]byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = chosen
}

// muffle carries what the process says, and nothing of what the server answers.
func (p *proxy) muffle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold, p.muffled = everything, true
}

// heal carries everything again, what was held first, but for stuck links.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold, p.muffled, p.refuses, p.delay, p.cutAt = nil, false, false, 0, 0
	close(p.freed)
	p.freed = make(chan struct{})
}

// stick holds the connections that there are, each on its own: healing does
// not free them, but the function returned does. It is a path that loses
// packets for long and then delivers them. The process sees them ended, as by
// its own timeouts, so that they carry what lies there and nothing newer.
func (p *proxy) stick() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := make(chan struct{})
	for l := range p.links {
		l.stuck = free
		if half, ok := l.client.(*net.TCPConn); ok {
			_ = half.CloseWrite() // ended already: fine
		}
	}
	return func() {
		p.mu.Lock()
		for l := range p.links {
			if l.stuck == free {
				l.stuck = nil
			}
		}
		p.mu.Unlock()
		close(free)
	}
}

// cut resets every connection, and refuses new ones when it is told to.
func (p *proxy) cut(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = refuse
	for l := range p.links {
		reset(l.client)
		_ = l.server.Close()
	}
}

// set changes how bytes are carried.
func (p *proxy) set(delay time.Duration, cutAt int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.cutAt = delay, cutAt
}

// redirect leads new connections to another server.
func (p *proxy) redirect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *proxy) late() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.carried
}

func (p *proxy) close() {
	p.stop()
	err := p.listener.Close()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		panic(err)
	}
	p.running.Wait()
}

// reset ends a connection without a goodbye.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // ended already: fine
	}
	_ = conn.Close()
}

// pause waits, or less when the context ends.
func pause(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
