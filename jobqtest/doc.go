// Package jobqtest helps to test applications that use jobq: a database for each
// test, what a function has enqueued, and a run of what is due. It is for tests
// only, and depends on no test framework.
//
//	func TestPlaceOrder(t *testing.T) {
//	    database := jobqtest.New(t, nil)
//	    enqueued := jobqtest.Record(t, database.Client)
//	    require.NoError(t, PlaceOrder(ctx, database.Client, 7))
//	    jobqtest.RequireOne(enqueued, jobqtest.Equal(SendReceipt{OrderID: 7}))
//
//	    jobqtest.RunDue(t, database.Client, func(w *worker.Worker) error {
//	        return worker.Handle(w, sendReceipt, nil)
//	    }, nil)
//	}
//
// A handler alone needs neither a database nor this package: worker.NewTestJob makes
// a job for it.
//
// There is no clock to set. When a job is due, when a lease ends and how long a
// backoff takes is decided by the database's clock, which a test cannot change.
// RunOptions.Ahead runs what is due later instead.
//
// docs/testing.md shows each of these at work.
package jobqtest

// TB is what this package needs of a *testing.T, *testing.B or *testing.F, and of
// what other test frameworks have in their place.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	// Fatalf reports a failure and ends the test: it does not return.
	Fatalf(format string, args ...any)
	Cleanup(cleanup func())
}
