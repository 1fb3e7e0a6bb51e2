// Command initial prints the migration 001_initial, for `make generate`. It imports nothing that sqlc generates from that
// migration, and so it can be built when the two do not fit together.
package main

import (
	"fmt"
	"os"

	"github.com/jobq-dev/jobq/sql/schema"
)

func main() {
	if _, err := os.Stdout.WriteString(schema.Initial()); err != nil {
		fmt.Fprintln(os.Stderr, "initial:", err)
		os.Exit(1)
	}
}
