package jobq

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jobq-dev/jobq/internal/db"
)

// Router spreads jobs over several databases, each of which has jobq's tables and workers of its own. A key, such as the name
// of a tenant or of a queue, always leads to the same database. When a database is added to N others, one in N+1 keys leads to
// it, and all other keys lead where they led before; when one is taken away, only its keys move.
//
// A router only chooses where a job is added: jobs that are there stay. All programs must give the same databases the same
// names.
//
// It is rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998): a key leads to
// the name for which the first eight bytes of SHA-256(name, a zero byte, key) are greatest as an unsigned big-endian number,
// so that programs in other languages can choose likewise.
type Router struct {
	names   []string // sorted
	clients map[string]*Client
}

// NewRouter returns a router over clients by the names of their databases. A name is not empty, and has no colon, control
// character or space. It does not talk to the databases: see [Router.Check].
func NewRouter(clients map[string]*Client) (*Router, error) {
	if len(clients) == 0 {
		return nil, errors.New("jobq router: it needs one database at least")
	}
	for name, client := range clients {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == ':' || r == 0x7f }) {
			return nil, fmt.Errorf("jobq router: %q is no name of a database: no colon, space or control character, and not empty", name)
		}
		if client == nil {
			return nil, fmt.Errorf("jobq router: the client of %q is nil", name)
		}
	}
	return &Router{names: slices.Sorted(maps.Keys(clients)), clients: maps.Clone(clients)}, nil
}

// Name is the name of the database that a key leads to.
func (r *Router) Name(key string) string {
	var best string
	var greatest uint64
	for _, name := range r.names {
		sum := sha256.Sum256([]byte(name + "\x00" + key))
		if weight := binary.BigEndian.Uint64(sum[:8]); best == "" || weight > greatest {
			best, greatest = name, weight
		}
	}
	return best
}

// For is the client of the database that a key leads to.
func (r *Router) For(key string) *Client { return r.clients[r.Name(key)] }

// Client is the client of the database with a name; nil if there is none.
func (r *Router) Client(name string) *Client { return r.clients[name] }

// Names are the names of the databases, sorted.
func (r *Router) Names() []string { return slices.Clone(r.names) }

// Check calls [Client.Check] for each database, and returns an error that names those with a problem, and those that are the
// same database and schema by two names.
func (r *Router) Check(ctx context.Context) error {
	var problems []error
	var checked []string
	for _, name := range r.names {
		if err := r.check(ctx, name, checked); err != nil {
			problems = append(problems, fmt.Errorf("database %q: %w", name, err))
			continue
		}
		checked = append(checked, name)
	}
	return errors.Join(problems...)
}

func (r *Router) check(ctx context.Context, name string, others []string) error {
	client := r.clients[name]
	if err := client.Check(ctx); err != nil {
		return err
	}
	for _, other := range others {
		same, err := isSame(ctx, client, r.clients[other])
		if err != nil {
			return err
		}
		if same {
			return fmt.Errorf("it is the same as %q", other)
		}
	}
	return nil
}

// isSame says whether two clients work on the same tables.
func isSame(ctx context.Context, a, b *Client) (bool, error) {
	if a.Schema() != b.Schema() {
		return false, nil
	}
	left, err := a.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer left.Release()
	if a.pool == b.pool {
		return true, nil
	}
	right, err := b.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer right.Release()
	err = db.CheckSameDatabase(ctx, left.Conn(), right.Conn())
	if errors.Is(err, db.ErrOtherDatabase) {
		return false, nil
	}
	return err == nil, err
}
