package layouts

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// RandomArgs are JSON that does not compress much: base64 of random bytes.
func RandomArgs(length int) (string, error) {
	random := make([]byte, length*3/4)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	return `{"d": "` + base64.StdEncoding.EncodeToString(random) + `"}`, nil
}

// WALPosition is how many bytes of WAL the server has written.
func WALPosition(ctx context.Context, conn *pgx.Conn) (bytes float64, err error) {
	err = conn.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&bytes)
	return bytes, err
}

// CPUTime is how long the backends of connections have been on a processor, by
// Linux's scheduler, which counts nanoseconds.
func CPUTime(conns []*pgx.Conn) (time.Duration, error) {
	var total time.Duration
	for _, conn := range conns {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", conn.PgConn().PID()))
		if err != nil {
			return 0, err
		}
		var nanoseconds int64
		if _, err := fmt.Sscan(string(content), &nanoseconds); err != nil {
			return 0, err
		}
		total += time.Duration(nanoseconds)
	}
	return total, nil
}
