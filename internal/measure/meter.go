package measure

import (
	"context"
	"io/fs"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Meter reads what client and server have used up.
type Meter struct {
	db         querier
	proc       fs.FS // /proc
	postmaster int   // 0 when the server is elsewhere, or hidden
}

// Reading is what was used up by a moment.
type Reading struct {
	At        time.Time
	ClientCPU time.Duration // of this process
	ServerCPU time.Duration // of the whole server, when it is local
	WALBytes  int64         // of the whole server
}

// Usage is what was used up between two readings.
type Usage struct {
	Elapsed     time.Duration
	ClientCPU   time.Duration
	ServerCPU   time.Duration
	ServerKnown bool // whether ServerCPU was measured
	WALBytes    int64
}

// NewMeter looks whether the server is on this machine, where its CPU time
// can be read.
func NewMeter(ctx context.Context, db querier) (*Meter, error) {
	m := &Meter{db: db, proc: os.DirFS("/proc")}
	var pid int
	var local bool
	err := db.QueryRow(ctx, "select pg_backend_pid(), inet_server_addr() is null or inet_server_addr() <<= '127.0.0.0/8' or inet_server_addr() = '::1'").
		Scan(&pid, &local)
	if err != nil {
		return nil, err
	}
	if local {
		m.postmaster = postmasterOf(m.proc, pid)
	}
	return m, nil
}

// KnowsServer says whether the server's CPU time can be read.
func (m *Meter) KnowsServer() bool { return m.postmaster != 0 }

// Read takes a reading.
func (m *Meter) Read(ctx context.Context) (Reading, error) {
	reading := Reading{ClientCPU: ClientCPU()}
	if m.postmaster != 0 {
		reading.ServerCPU = familyCPU(m.proc, m.postmaster)
	}
	err := m.db.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&reading.WALBytes)
	reading.At = time.Now()
	return reading, err
}

// Since is what was used up since an earlier reading.
func (m *Meter) Since(before Reading, now Reading) Usage {
	return Usage{
		Elapsed: now.At.Sub(before.At), ClientCPU: now.ClientCPU - before.ClientCPU,
		ServerCPU: now.ServerCPU - before.ServerCPU, ServerKnown: m.postmaster != 0,
		WALBytes: now.WALBytes - before.WALBytes,
	}
}
