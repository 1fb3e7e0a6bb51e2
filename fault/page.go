package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// The results stand between these marks: what people have written around them stays.
const (
	resultsBegin = "<!-- From here on written by make fault. -->\n"
	resultsEnd   = "<!-- Until here. -->\n"
)

// page is the file that the results of the full set go to.
type page struct {
	file         string
	above, below string // the results
}

// openPage reads the file before hours go by, and refuses what would lose something of it: a run of a part, or
// a page in which the results have no place.
func openPage(s settings) (page, error) {
	p := page{file: s.out, above: "# Fault tests\n\n"}
	if s.out == "" {
		return p, nil
	}
	content, err := os.ReadFile(s.out)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	if s.only != "" || s.smoke || !s.mutants {
		return p, fmt.Errorf("%s would lose the results of what does not run with --only, --smoke or --mutants=false: write to another file", s.out)
	}
	above, rest, begins := strings.Cut(string(content), resultsBegin)
	_, below, ends := strings.Cut(rest, resultsEnd)
	if !begins || !ends {
		return p, fmt.Errorf("%s has no lines %q and %q, between which the results go", s.out, strings.TrimSpace(resultsBegin), strings.TrimSpace(resultsEnd))
	}
	p.above, p.below = above, below
	return p, nil
}

// write puts the results into the page.
func (p page) write(results string) error {
	if p.file == "" {
		return nil
	}
	return os.WriteFile(p.file, []byte(p.above+resultsBegin+results+resultsEnd+p.below), 0o644) // #nosec G306 -- a page of the documentation
}
