package jobqtest

// FullNumberSQL is the whole number of a transaction.
const FullNumberSQL = fullNumberSQL

// Sum adds what two workers have counted.
var Sum = sum

// WithTB is the recorder in another test.
func WithTB(r *Recorder, tb TB) *Recorder {
	other := *r
	other.tb = tb
	return &other
}
