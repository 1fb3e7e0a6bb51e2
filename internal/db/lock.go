package db

import (
	"crypto/md5" // #nosec G501 -- spreads names over numbers; nothing secret
	"encoding/binary"
)

// LockRole is what an advisory lock of jobq stands for.
type LockRole int32

// The roles. Package migrate has its own way of taking turns.
const (
	LockJanitor LockRole = 1
	LockMigrate LockRole = 2
	// LockChores is held for each step of a janitor's housekeeping.
	LockChores LockRole = 3
	// LockRescue is held for each step of a janitor that does what the one with
	// LockJanitor has left undone.
	LockRescue LockRole = 4
)

// AdvisoryKey is the two-part key of an advisory lock: the class tells
// schemas, and jobq from other users of advisory locks, apart.
func (s *Schema) AdvisoryKey(role LockRole) (class, object int32) {
	return spread("jobq advisory lock " + s.name), int32(role)
}

// PresenceKey is the advisory lock that a worker holds, shared, for as long as
// it is connected. Two workers with one key would only look alive for longer.
func (s *Schema) PresenceKey(workerID string) (class, object int32) {
	return spread("jobq presence lock " + s.name), spread(workerID)
}

func spread(name string) int32 {
	sum := md5.Sum([]byte(name))                   // #nosec G401 -- see the import
	return int32(binary.BigEndian.Uint32(sum[:4])) // #nosec G115 -- any 32 bits will do
}
