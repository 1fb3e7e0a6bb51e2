package db_test

import (
	"testing"
	"time"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// patience ends a test that hangs: no promise is about it.
const patience = time.Minute

func TestMain(m *testing.M) { pgtest.Main(m) }
