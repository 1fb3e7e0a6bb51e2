package db

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// RunToken names a run in calls of jobq.complete and its like. Its last part is the code that
// jobq.run_token_code computes: a nested hash (NMAC) with the two halves of the key.
func RunToken(key []byte, lease int64, claimedAt time.Time, slot int16) string {
	run := fmt.Sprintf("%d.%d.%d", lease, claimedAt.UnixMicro(), slot)
	half := len(key) / 2
	inner := sha256.Sum256(append(key[:half:half], run...))
	outer := sha256.Sum256(append(key[half:len(key):len(key)], inner[:]...))
	return run + "." + hex.EncodeToString(outer[:16])
}
