package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What people have written around the results stays, and a run that would lose results is refused before it begins.
func TestPage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "faults.md")
	whole := settings{out: file, mutants: true}
	write := func(results string) {
		t.Helper()
		p, err := openPage(whole)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.write(results); err != nil {
			t.Fatal(err)
		}
	}
	requireContent := func(expected string) {
		t.Helper()
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(content) != expected {
			t.Fatalf("the page is %q and not %q", content, expected)
		}
	}
	write("first\n")
	requireContent("# Fault tests\n\n" + resultsBegin + "first\n" + resultsEnd)
	if err := os.WriteFile(file, []byte("by hand\n"+resultsBegin+"first\n"+resultsEnd+"## By hand\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	write("second\n")
	requireContent("by hand\n" + resultsBegin + "second\n" + resultsEnd + "## By hand\n")

	for name, change := range map[string]func(s *settings){
		"only": func(s *settings) { s.only = "F1" }, "smoke": func(s *settings) { s.smoke = true }, "mutants": func(s *settings) { s.mutants = false },
	} {
		part := whole
		change(&part)
		if _, err := openPage(part); err == nil || !strings.Contains(err.Error(), "would lose") {
			t.Fatalf("%s: %v", name, err)
		}
		part.out = file + ".new"
		if _, err := openPage(part); err != nil {
			t.Fatal(err)
		}
	}
	for _, content := range []string{"by hand\n", resultsEnd + resultsBegin, resultsBegin} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openPage(whole); err == nil || !strings.Contains(err.Error(), "has no lines") {
			t.Fatalf("%q: %v", content, err)
		}
	}
}
