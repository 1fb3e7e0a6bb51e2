package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/storable"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/operator"
)

// keysVariable is the environment variable that has keys.
const keysVariable = "JOBQ_KEYS"

// keysFlag names a file of keys.
type keysFlag struct{ file string }

func (k *keysFlag) add(flags flagSet, usage string) {
	flags.StringVar(&k.file, "keys-file", "", usage)
}

const (
	keysEncryptUsage = "file of keys; the first encrypts args (default the keys in JOBQ_KEYS, else args are stored as they are)"
	keysShowUsage    = "file of keys, to show encrypted args, checkpoints, results and steps as plain text"
)

// fromFile is the keyring of the file that the flag names, or nil. It is for commands
// that show plain text: keys in the environment alone would show it to whoever looks
// over the operator's shoulder.
func (k *keysFlag) fromFile() (jobq.Codec, error) {
	if k.file == "" {
		return nil, nil
	}
	keys, err := keyring.Load(k.file)
	if err != nil {
		return nil, usagef("--keys-file: %w", err)
	}
	return keys, nil
}

// codec is the keyring of the file that the flag names, of the environment, or of the other file, in
// this order; nil when there is none.
func (k *keysFlag) codec(otherFile string) (jobq.Codec, error) {
	if k.file != "" {
		return k.fromFile()
	}
	// An empty one is what a script leaves behind whose keys were not there: values would be stored plain.
	if text, given := os.LookupEnv(keysVariable); given {
		keys, err := keyring.Parse(text)
		if err != nil {
			return nil, usagef("%s: %w; unset it to do without keys", keysVariable, err)
		}
		return keys, nil
	}
	return (&keysFlag{otherFile}).fromFile()
}

// warnIfReadable warns of a file of keys that every user of the machine can read.
func warnIfReadable(log *slog.Logger, path string) {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o004 != 0 {
		log.Warn("every user of this machine can read the keys: chmod o-r the file", "file", path)
	}
}

// argsCodec encrypts args that replace those of a job that is there.
type argsCodec struct{ codec jobq.Codec }

// check refuses a change that keys cannot do to so many jobs that are named: each job's args are encrypted for it alone.
func (c argsCodec) check(change operator.JobChange, named int) error {
	if change.Args != nil && c.codec != nil && named != 1 {
		return usagef("args of one job at a time can be encrypted: name one job")
	}
	return nil
}

// decode returns the job with plain args, if there are keys. Its checkpoint and result nobody edits.
func (c argsCodec) decode(ctx context.Context, job *jobq.Job) (*jobq.Job, error) {
	if c.codec == nil {
		return job, nil
	}
	plain := *job
	var err error
	if plain.Args, err = coding.Decode(ctx, c.codec, coding.ValueOf(jobq.FieldArgs, job.Kind, job.ID), job.Args); err != nil {
		return nil, fmt.Errorf("%w; to replace them: jobq edit %d --args JSON --keys-file FILE", err, job.ID)
	}
	return &plain, nil
}

// encode returns the args as they are stored for the job. Without keys, they would take the
// place of encrypted ones as plain text, and are refused.
func (c argsCodec) encode(ctx context.Context, job *jobq.Job, args json.RawMessage) (json.RawMessage, error) {
	if key, is := jobq.EncryptedWith(job.Args); is && c.codec == nil {
		if _, also := jobq.EncryptedWith(args); !also {
			return nil, usagef("the args of job %d are encrypted with key %q, and new ones would be plain text: give --keys-file, or set %s", job.ID, key, keysVariable)
		}
	}
	var compact bytes.Buffer // an editor leaves blanks, which jsonb would not keep
	if err := json.Compact(&compact, args); err != nil {
		return nil, err
	}
	if c.codec != nil { // the database cannot see it
		if err := storable.Encoded("args", compact.Bytes()); err != nil {
			return nil, fmt.Errorf("%w: %w", jobq.ErrInvalid, err)
		}
	}
	stored, err := coding.Encode(ctx, c.codec, coding.ValueOf(jobq.FieldArgs, job.Kind, job.ID), compact.Bytes())
	if errors.Is(err, coding.ErrEncoded) {
		return nil, fmt.Errorf("%w: %w", jobq.ErrInvalid, err)
	}
	return stored, err
}

// encodeFor is encode for the job of that id.
func (c argsCodec) encodeFor(ctx context.Context, client *jobq.Client, id int64, args json.RawMessage) (json.RawMessage, error) {
	job, err := client.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.encode(ctx, job, args)
}

// newKeygenCommand is "jobq keygen".
func newKeygenCommand() *cobra.Command {
	return withoutDatabase(&cobra.Command{
		Use:   "keygen [NAME]",
		Short: "Make a key that encrypts the args and results of jobs",
		Long: `Print a new random key, as a line of a file of keys: NAME:SECRET. The name is stored with
each value that the key encrypts, and is no secret; without one, it has today's date. The
secret is nowhere else: without it, nobody can read what it has encrypted.

The first key of a file encrypts, and all decrypt: --keys-file and JOBQ_KEYS take such files.
docs/encryption.md is a guide.`,
		Example: `  (umask 077; jobq keygen > keys)
  jobq keygen k2 >> keys        # decrypts only, until it is moved to the top`,
		Args: rangeArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := time.Now().UTC().Format("k2006-01-02")
			if len(args) == 1 {
				name = args[0]
			}
			key, err := keyring.NewKey(name)
			if err != nil {
				return usageError{err}
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), key.Line())
			return err
		},
	})
}
