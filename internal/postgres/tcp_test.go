package postgres

import (
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Goal: over TCP only who has the password gets in, and only on the loopback.
func TestTCP(t *testing.T) {
	t.Parallel()
	s := start(t, Config{TCP: true})
	require.Equal(t, "127.0.0.1", ask[string](t, s.URL("postgres"), "show listen_addresses"))
	require.Equal(t, "127.0.0.1", ask[string](t, s.URL("postgres"), "select host(inet_client_addr())"))
	require.True(t, ask[bool](t, s.SocketURL("postgres"), "select inet_client_addr() is null"))
	require.Contains(t, ask[string](t, s.SocketURL("postgres"), "select rolpassword from pg_authid where rolname = 'postgres'"), "SCRAM-SHA-256$")

	address, err := url.Parse(s.URL("postgres"))
	require.NoError(t, err)
	for name, credentials := range map[string]*url.Userinfo{
		"none": url.User("postgres"), "wrong": url.UserPassword("postgres", "postgres"),
	} {
		address.User = credentials
		_, err := pgx.Connect(t.Context(), address.String())
		require.Error(t, err, name)
	}
}

// Goal: the port stays the same from one start to the next while it is free,
// and one that was asked for is not replaced by another.
func TestPort(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "data")
	s := start(t, Config{DataDir: dir, TCP: true})
	before := s.URL("postgres")
	require.NoError(t, s.Stop(t.Context()))

	listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(s.port))
	require.NoError(t, err)
	_, err = Start(t.Context(), Config{DataDir: dir, TCP: true, Port: s.port})
	require.ErrorContains(t, err, "Address already in use")
	other := start(t, Config{DataDir: dir, TCP: true})
	require.NotEqual(t, before, other.URL("postgres"))
	require.Equal(t, 1, ask[int](t, other.URL("postgres"), "select 1"))
	require.NoError(t, other.Stop(t.Context()))
	require.NoError(t, listener.Close())

	s = start(t, Config{DataDir: dir, TCP: true, Port: s.port})
	require.Equal(t, before, s.URL("postgres"))
}
