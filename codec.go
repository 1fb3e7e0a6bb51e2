package jobq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Codec turns the args, checkpoints, results and steps of jobs into what is stored in the
// database, and back: see [Config].Codec. Package keyring has one that encrypts.
type Codec = coding.Codec

// CodecValue says which value of which job a Codec is given.
type CodecValue = coding.Value

// CodecField is one of the values of a job that a Codec encodes.
type CodecField = coding.Field

// The fields that a Codec encodes.
const (
	FieldArgs       = coding.Args
	FieldCheckpoint = coding.Checkpoint
	FieldResult     = coding.Result
	FieldStep       = coding.Step // the result of a Step or a StepTx
)

// ErrUnreadable says that a stored value cannot be decoded, such as one that is encrypted with a
// key that is not there.
var ErrUnreadable = coding.ErrUnreadable

// EncryptedWith says whether a stored value is encrypted, and with which key; "" if that
// cannot be read.
func EncryptedWith(stored json.RawMessage) (key string, encrypted bool) {
	value, encrypted, _ := coding.Parse(stored)
	return value.Key, encrypted
}

// encodedArgs are the args as they are stored.
func (c *Client) encodedArgs(ctx context.Context, kind string, args json.RawMessage) (json.RawMessage, error) {
	stored, err := coding.Encode(ctx, c.codec, coding.ValueOf(FieldArgs, kind, 0), args)
	if errors.Is(err, coding.ErrEncoded) {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return stored, err
}

// encodeArgs puts in place of the args of each of many jobs what is stored for them.
func (c *Client) encodeArgs(ctx context.Context, kinds []string, args []json.RawMessage) (err error) {
	if c.codec == nil {
		return nil
	}
	for i := range args {
		if args[i], err = c.encodedArgs(ctx, kinds[i], args[i]); err != nil {
			return fmt.Errorf("jobs[%d]: %w", i, err)
		}
	}
	return nil
}

// refused is the error of an enqueue that the database has refused.
func (c *Client) refused(err error) error {
	return c.blameCodec(dberror.Wrap(c.schema, "enqueue", dberror.NeedRole(db.RoleProducer, err)))
}

// blameCodec adds to a refusal of args that are too long that these were encoded: the
// database counts bytes that the caller has never seen.
func (c *Client) blameCodec(err error) error {
	if c.codec != nil && errors.Is(err, ErrInvalid) && strings.Contains(err.Error(), "args must be at most") {
		return fmt.Errorf("%w, and these were encoded by the client's codec: encrypted args are a third longer", err)
	}
	return err
}

// Decode replaces the job's args, checkpoint and result by the values for which they are
// stored. Those that cannot be decoded stay as they are, and the error is ErrUnreadable. Of a
// client with a Codec, Get has done so already.
func (j *Job) Decode(ctx context.Context, codec Codec) error {
	var problems error
	for _, each := range []struct {
		field CodecField
		value *json.RawMessage
	}{{FieldArgs, &j.Args}, {FieldCheckpoint, &j.Checkpoint}, {FieldResult, &j.Result}} {
		value, err := coding.Decode(ctx, codec, coding.ValueOf(each.field, j.Kind, j.ID), *each.value)
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		*each.value = value
	}
	return problems
}
