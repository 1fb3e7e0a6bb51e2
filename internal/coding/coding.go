// Package coding is what stands between the values of jobs and what is stored in
// their place: the Codec of an application, and the form in which encrypted values
// are stored.
package coding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Field is one of the values of a job that a Codec encodes.
type Field string

// The fields.
const (
	Args       Field = "args"
	Checkpoint Field = "checkpoint"
	Result     Field = "result"
	Step       Field = "step"
)

// Value says which value of which job a Codec is given. A Codec that encrypts
// binds what it stores to all of it.
type Value struct {
	Field Field
	Kind  string // the job's
	// JobID is the job's id. For FieldArgs it is 0: they are encoded before the job has an id,
	// and a clone has the args of another job.
	JobID int64
	Name  string // of FieldStep: the step's
}

// ValueOf is one of the values of a job.
func ValueOf(field Field, kind string, jobID int64) Value {
	if field == Args {
		jobID = 0
	}
	return Value{Field: field, Kind: kind, JobID: jobID}
}

// ValueOfStep is the result of a step.
func ValueOfStep(kind string, jobID int64, name string) Value {
	return Value{Field: Step, Kind: kind, JobID: jobID, Name: name}
}

// noun is what errors call the value.
func (v Value) noun() string {
	if v.Field == Step {
		return fmt.Sprintf("result of step %q", v.Name)
	}
	return string(v.Field)
}

// Codec turns the args, checkpoints, results and steps of jobs into what is stored in the
// database, and back. It may encrypt them, or store them elsewhere. Its methods are called
// from several goroutines.
type Codec interface {
	// Encode returns the JSON that is stored in place of the value.
	Encode(ctx context.Context, about Value, value json.RawMessage) (json.RawMessage, error)
	// Decode returns the value for which the JSON is stored. A value that no Codec has
	// encoded, such as the args of a job that was added from SQL, it returns as it is. An error
	// costs the job no attempt: it is tried again later.
	Decode(ctx context.Context, about Value, stored json.RawMessage) (json.RawMessage, error)
}

// ErrUnreadable says that a stored value cannot be decoded.
var ErrUnreadable = errors.New("cannot be decoded")

// UnreadableError is ErrUnreadable with what is known of the value.
type UnreadableError struct {
	About Value
	Key   string // the key that it is encrypted with; "" if that is not known
	Err   error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.About.noun(), ErrUnreadable, e.Err)
}

// Unwrap returns the reason.
func (e *UnreadableError) Unwrap() []error { return []error{ErrUnreadable, e.Err} }

// errNoKeys is the reason where nothing could decrypt the value.
var errNoKeys = errors.New("there are no keys here: docs/encryption.md says how to give them")

// ErrDamaged is the reason of a Codec that has what it needs, and whose stored value is not what
// it has encoded for that job: it stays so.
var ErrDamaged = errors.New("the value is damaged")

// ErrDoubtful is the reason of a Codec that has the key, with which it has decrypted nothing so far: the
// value is damaged, or the key has another secret here than elsewhere.
var ErrDoubtful = errors.New("the value is damaged, or the key has the wrong secret")

// ErrEncoded refuses a value that looks like a stored one. It may come from outside: who has
// read the database could else have a handler decrypt what they cannot.
var ErrEncoded = errors.New("it is encrypted already, or has the member \"$jobq\", which is reserved for that")

// Encode is the codec's, for values that are there. Without a codec, values are stored as
// they are, such as the encrypted args of an exported job.
func Encode(ctx context.Context, codec Codec, about Value, value json.RawMessage) (json.RawMessage, error) {
	if codec == nil || value == nil {
		return value, nil
	}
	if _, is, _ := Parse(value); is {
		return nil, fmt.Errorf("encode %s: %w", about.noun(), ErrEncoded)
	}
	stored, err := codec.Encode(ctx, about, value)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", about.noun(), err)
	}
	if !json.Valid(stored) {
		return nil, fmt.Errorf("encode %s: the codec has returned what is not JSON", about.noun())
	}
	return stored, nil
}

// Decode is the codec's, for values that are there. Without a codec, encrypted values cannot
// be decoded, and all others are what is stored. Errors are *UnreadableError.
func Decode(ctx context.Context, codec Codec, about Value, stored json.RawMessage) (json.RawMessage, error) {
	if stored == nil {
		return nil, nil
	}
	unreadable := func(err error) error {
		encrypted, _, _ := Parse(stored)
		if encrypted.Key != "" {
			err = fmt.Errorf("encrypted with key %q: %w", encrypted.Key, err)
		}
		return &UnreadableError{About: about, Key: encrypted.Key, Err: err}
	}
	if codec == nil {
		if _, is, _ := Parse(stored); is {
			return nil, unreadable(errNoKeys)
		}
		return stored, nil
	}
	value, err := codec.Decode(ctx, about, stored)
	if err != nil {
		return nil, unreadable(err)
	}
	if !json.Valid(value) {
		return nil, unreadable(errors.New("the codec has returned what is not JSON"))
	}
	return value, nil
}

// Misfit is the error of a value that does not decode into the target. Errors of JSON quote
// values, and the job's errors are stored as plain text: of a value that is stored encoded
// only the place is told.
func Misfit(err error, target any, encoded bool) error {
	if !encoded {
		return err
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) && kind.Field != "" {
		return fmt.Errorf("it does not fit %T: its field %s must be %s (values are not shown, since they are stored encoded)", target, kind.Field, kind.Type)
	}
	return fmt.Errorf("it does not fit %T (why is not shown, since it is stored encoded)", target)
}
