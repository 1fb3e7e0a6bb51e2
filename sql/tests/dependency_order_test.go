package tests

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Jobs that one parent frees come into the line in the order in which they were added, as the strict order of their key
// promises; not by their places in the table, which were free before.
func TestFreedTogetherInTheirOrder(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', queue => 'gone') from generate_series(1, 1000)")
	parent := q.parent()
	add := func() {
		q.exec("select jobq.enqueue('k', queue => 'children', after => array[$1::bigint], partition_key => 'a') from generate_series(1, 200)", parent.ID)
	}
	add()
	q.exec("delete from jobq.pending p where p.queue = 'gone'")
	q.exec("vacuum jobq.pending")
	add() // where these were
	require.NotZero(t, q.number("select count(*) from (select p.id > lag(p.id) over (order by p.ctid) as grows from jobq.pending p where p.queue = 'children') x where not x.grows"),
		"the children lie in the order of their ids anyway")
	q.exec("analyze jobq.pending")
	q.completes(plainly(parent))
	q.settle()
	require.Zero(t, q.number("select count(*) from jobq.pending p where p.queue = 'children' and p.position is null"))
	require.Zero(t, q.number("select count(*) from (select p.id > lag(p.id) over (order by p.position) as grows from jobq.pending p where p.queue = 'children') x where not x.grows"))
}
