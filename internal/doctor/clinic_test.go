package doctor_test

import (
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/doctor"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/postgres"
)

// clinic is a server with settings as in production, with roles, and a healthy
// database from which those of the tests are copied. Nothing happens in a database
// but what a test does.
type clinic struct {
	server *postgres.Server
	admin  *pgxpool.Pool
}

func newClinic(t *testing.T) *clinic {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server, err := postgres.Start(ctx, postgres.Config{InMemory: true, Durable: true, Settings: map[string]string{
		"max_connections": "300", "shared_buffers": "64MB", "wal_level": "logical", "max_prepared_transactions": "10",
		"autovacuum_naptime": "1d", // so that dead rows stay
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
	})
	c := &clinic{server, pgtest.Connect(t, server.URL("postgres"))}
	_, err = c.admin.Exec(ctx, "create database healthy")
	require.NoError(t, err)
	require.NoError(t, pgtest.Migrate(ctx, server.URL("healthy"), "jobq"))
	conn, err := pgx.Connect(ctx, server.URL("healthy"))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, pgtest.Roles(t)+"; revoke create on schema public from public") // as since PostgreSQL 15
	require.NoError(t, err)
	_, err = conn.Exec(ctx, `select jobq.partition_add(p, (clock_timestamp() at time zone 'UTC')::date + d)
		from unnest(array['run', 'past_lease', 'attempt']) p, generate_series(0, 3) d`)
	require.NoError(t, err)
	return c
}

// database is a copy of the healthy one.
func (c *clinic) database(t *testing.T, name string) string {
	t.Helper()
	_, err := c.admin.Exec(context.Background(), "create database "+name+" template healthy")
	require.NoError(t, err)
	return c.server.URL(name)
}

func examine(t *testing.T, config doctor.Config) *doctor.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if config.Limits.NotificationWithin == 0 {
		config.Limits.NotificationWithin = patience // the machine may be busy
	}
	if config.Limits.ClockSkew == 0 {
		config.Limits.ClockSkew = time.Minute
	}
	report, err := doctor.Run(ctx, config)
	require.NoError(t, err)
	return report
}

// found are the checks that have a finding, each once.
func found(report *doctor.Report) (names []string) {
	seen := make(map[string]bool)
	for _, f := range report.Findings {
		if !seen[f.Check] {
			names = append(names, f.Check)
		}
		seen[f.Check] = true
	}
	return names
}

// execute runs SQL as the owner.
func execute(t *testing.T, url, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
	require.NoError(t, err, sql)
}

// hold runs statements in a session that stays open until the test ends.
func hold(t *testing.T, url string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close(conn, time.Second) })
	for _, sql := range statements {
		_, err = conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
}

// await waits until a query answers true.
func await(t *testing.T, url, sql string) {
	t.Helper()
	pool := pgtest.Connect(t, url)
	require.Eventually(t, func() bool {
		var yes bool
		err := pool.QueryRow(context.Background(), sql).Scan(&yes)
		return err == nil && yes
	}, patience, 20*time.Millisecond)
}

// unnotifiedPool is a pool whose connections lose notifications on their way.
func unnotifiedPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &unnotifiedConn{Conn: conn}, nil
	}
	return pgtest.ConnectConfig(t, config)
}

// unnotifiedConn drops the server's messages of type A, which are notifications.
type unnotifiedConn struct {
	net.Conn
	ready   []byte // to be read
	partial []byte // of a message
}

func (c *unnotifiedConn) Read(p []byte) (int, error) {
	buffer := make([]byte, 4096)
	for len(c.ready) == 0 {
		n, err := c.Conn.Read(buffer)
		c.partial = append(c.partial, buffer[:n]...)
		for len(c.partial) >= 5 {
			size := 1 + int(binary.BigEndian.Uint32(c.partial[1:5]))
			if len(c.partial) < size {
				break
			}
			if c.partial[0] != 'A' {
				c.ready = append(c.ready, c.partial[:size]...)
			}
			c.partial = c.partial[size:]
		}
		if err != nil && len(c.ready) == 0 {
			return 0, err
		}
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}
