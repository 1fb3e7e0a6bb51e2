package main

import (
	"context"
	"fmt"
	"io"
)

// report writes the results as they are kept in RESULTS.md.
func (l *lab) report(ctx context.Context, out io.Writer) error {
	fmt.Fprint(out, "# Results\n\nWritten by `make bench`; do not edit. Medians of interleaved rounds (least–most), on one machine for server and\n"+
		"clients. Only ratios within one table mean anything: the machine is shared, and its speed changes by the hour.\n\n")
	if err := l.Describe(ctx, out, l.commit); err != nil {
		return err
	}
	l.writeBars(out)
	environment := l.Environment()
	for _, s := range scenarios() {
		l.sheet.WriteScenario(out, s.name, s.title, s.about, environment)
	}
	return nil
}
