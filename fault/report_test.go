package main

import (
	"os"
	"strings"
	"testing"
)

// Every scenario, and every mutant that it must catch, has a row on the page, whose verdict is
// what was promised: a scenario that was added and whose outcome nobody has written down is found.
func TestEveryScenarioIsOnThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/internals/fault-tests.md")
	if err != nil {
		t.Fatal(err)
	}
	has := func(name, verdict string) {
		t.Helper()
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "| "+name+" | ") && strings.HasSuffix(line, " | "+verdict+" |\n") {
				return
			}
		}
		t.Errorf("docs/internals/fault-tests.md has no row of %q with the verdict %q: run it, such as with go run . --smoke --only, and add its table", name, verdict)
	}
	for _, s := range scenarios() {
		has(s.id+" "+s.name, "holds")
		for _, mutant := range s.mutants {
			has("mutant "+mutant+" in "+s.id, "caught")
		}
	}
}
