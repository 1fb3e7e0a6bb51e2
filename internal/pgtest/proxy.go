package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Proxy stands between a client and a database, to cut them off from each
// other.
type Proxy struct {
	URL       string // of the database, through the proxy
	DirectURL string

	stop    context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// guarded by mu
	swallows    bool
	answersLost bool // only what the server answers is swallowed
	refuses     bool
	links       map[net.Conn]struct{} // to clients
	noticed     chan struct{}
}

// StartProxy starts a proxy for the database, until the test ends.
func StartProxy(tb testing.TB, databaseURL string) *Proxy {
	tb.Helper()
	server, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		URL:       fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", server.User, listener.Addr(), url.PathEscape(server.Database)),
		DirectURL: databaseURL, links: make(map[net.Conn]struct{}), noticed: make(chan struct{}, 1),
		stop: func() {
			cancel()
			_ = listener.Close()
		},
	}
	p.running.Go(func() { p.accept(ctx, listener, server) })
	tb.Cleanup(p.Close)
	return p
}

func (p *Proxy) accept(ctx context.Context, listener net.Listener, server *pgx.ConnConfig) {
	network, address := pgconn.NetworkAddress(server.Host, server.Port)
	for {
		client, err := listener.Accept()
		if err != nil {
			return // closed
		}
		backend, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			_ = client.Close()
			continue
		}
		if p.isRefusing() {
			_, _ = client.Close(), backend.Close()
			continue
		}
		context.AfterFunc(ctx, func() { _, _ = client.Close(), backend.Close() })
		p.mu.Lock()
		p.links[client] = struct{}{}
		p.mu.Unlock()
		p.running.Go(func() {
			p.pipe(client, backend, false)
			p.mu.Lock()
			delete(p.links, client)
			p.mu.Unlock()
		})
		p.running.Go(func() { p.pipe(backend, client, true) })
	}
}

// pipe passes bytes on. A stream of which some were swallowed is broken, and
// goes on to be swallowed.
func (p *Proxy) pipe(from, to net.Conn, answers bool) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 16<<10)
	hole := false
	for {
		count, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		hole = hole || p.swallows || p.answersLost && answers
		p.mu.Unlock()
		if hole {
			select {
			case p.noticed <- struct{}{}:
			default:
			}
			continue
		}
		if _, err := to.Write(buffer[:count]); err != nil {
			return
		}
	}
}

// Swallow makes the proxy a black hole: connections stay open, and nothing
// comes through.
func (p *Proxy) Swallow() { p.setSwallow(true) }

// SwallowAnswers makes the proxy lose what the server answers. What clients send
// still arrives.
func (p *Proxy) SwallowAnswers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answersLost = true
}

// Heal lets new connections through again.
func (p *Proxy) Heal() { p.setSwallow(false) }

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for client := range p.links {
		_ = client.Close()
	}
}

func (p *Proxy) setSwallow(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallows, p.answersLost = on, false
}

// Refuse makes the proxy close new connections at once, or not any more.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = on
}

func (p *Proxy) isRefusing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refuses
}

// Swallowed tells once something has been swallowed.
func (p *Proxy) Swallowed() <-chan struct{} { return p.noticed }

// Close ends the proxy and all connections through it.
func (p *Proxy) Close() {
	p.stop()
	p.running.Wait()
}
