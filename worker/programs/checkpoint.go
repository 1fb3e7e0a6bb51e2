package programs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq/worker"
)

// checkpointEnvBytesMax keeps JOBQ_CHECKPOINT below what Linux takes for one
// variable (MAX_ARG_STRLEN, 128 KiB).
const checkpointEnvBytesMax = 96 << 10

// checkCheckpoint refuses a program's checkpoint that might not fit into the
// environment of the next run.
func checkCheckpoint(checkpoint json.RawMessage) error {
	size, err := storedBytes(checkpoint)
	if err != nil {
		return err
	}
	if size > checkpointEnvBytesMax {
		return fmt.Errorf("checkpoint has %d bytes with its numbers written out, a program's may have %d: keep the bulk elsewhere, and say in the checkpoint where",
			size, checkpointEnvBytesMax)
	}
	return nil
}

// checkpointEnv is the run's checkpoint as JOBQ_CHECKPOINT: without the spaces
// that PostgreSQL puts in.
func checkpointEnv(run worker.ExternalRun) (string, error) {
	stored, err := checkpointOf(run)
	if err != nil || stored == nil {
		return "", err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, stored); err != nil {
		return "", fmt.Errorf("checkpoint: %w", err)
	}
	if compact.Len() > checkpointEnvBytesMax {
		return "", fmt.Errorf("checkpoint has %d bytes, a program can take %d: let a handler in Go finish the job, or enqueue it anew",
			compact.Len(), checkpointEnvBytesMax)
	}
	return compact.String(), nil
}

// storedBytes is how long JSON is, without spaces, at most after PostgreSQL has
// stored it: jsonb writes 1e300 with all its zeros. Nothing else gets longer.
func storedBytes(value json.RawMessage) (int, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, value); err != nil {
		return 0, err
	}
	size := compact.Len()
	decoder := json.NewDecoder(&compact)
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return size, nil
		}
		if err != nil {
			return 0, err
		}
		number, ok := token.(json.Number)
		at := strings.IndexAny(string(number), "eE")
		if !ok || at < 0 {
			continue
		}
		exponent, err := strconv.Atoi(string(number[at+1:]))
		if err != nil || max(exponent, -exponent) > checkpointEnvBytesMax {
			return 0, fmt.Errorf("checkpoint: number %.40s is too large to be stored", number)
		}
		size += max(exponent, -exponent)
	}
}

// checkpointOf is what was saved last, by this run or an earlier one; nil for
// nothing.
func checkpointOf(run worker.ExternalRun) (checkpoint json.RawMessage, err error) {
	_, err = run.Checkpoint(&checkpoint)
	return checkpoint, err
}
