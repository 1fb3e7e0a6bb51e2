// Package operator acts on jobs, queues, schedules and workers on behalf of a person: requeue,
// cancel, delete, edit and clone jobs, one by one or all that a filter matches; pause and resume
// queues, kinds and partition keys; set, pause, run and remove schedules; change settings; drain
// workers. Each action is recorded in the audit with the name of who took it, and most can be
// undone. The database role jobq_admin is needed.
package operator

import (
	"cmp"
	"fmt"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/storable"
)

// Operator acts on the database of a client. It is safe for concurrent use, keeps no
// state, and needs no closing.
type Operator struct {
	pool    db.Pool
	schema  *db.Schema
	queries *db.Queries
	actor   string
}

// New returns an operator on the client's database. The actor is who acts, as the
// audit names them, such as "ana@laptop": 1 to 255 characters. Default "unknown".
// New does not talk to the database. With a client that is nil, each call returns jobq.ErrInvalid.
func New(client *jobq.Client, actor string) *Operator {
	if client == nil {
		schema, none := db.SchemaOf("", ""), db.NoPool{Err: fmt.Errorf("%w: the client is nil", jobq.ErrInvalid)}
		return &Operator{pool: none, schema: schema, queries: schema.Queries(none), actor: cmp.Or(actor, "unknown")}
	}
	schema := db.SchemaOf(client.Schema(), client.Sessions())
	schema.NeedRole(db.RoleAdmin)
	return &Operator{pool: client.Pool(), schema: schema, queries: schema.Queries(client.Pool()), actor: cmp.Or(actor, "unknown")}
}

// argument is a text that a call is given, with the name that errors have for it.
type argument struct{ name, text string }

// checkTexts refuses arguments, and an actor, that PostgreSQL cannot store.
func (o *Operator) checkTexts(operation string, arguments ...argument) error {
	for _, each := range append([]argument{{"actor", o.actor}}, arguments...) {
		if err := storable.Text(each.name, each.text); err != nil {
			return fmt.Errorf("%s: %w: %w", operation, jobq.ErrInvalid, err)
		}
	}
	return nil
}
