// Command charts draws the figures of RESULTS.json that the README shows as pictures. `make bench-charts` runs it.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/jobq-dev/jobq/bench/sheet"
)

// pictures are the files, and what draws them.
var pictures = map[string]func(s *sheet.Sheet) ([]byte, error){
	"drain.svg": drawDrain,
	"held.svg":  drawHeld,
}

func main() {
	figures := flag.String("figures", "RESULTS.json", "the file of the figures")
	folder := flag.String("out", "charts", "the folder to write the pictures to")
	flag.Parse()
	if err := run(*figures, *folder); err != nil {
		log.Fatal(err)
	}
}

func run(figures, folder string) error {
	s := sheet.New()
	if err := s.Load(figures); err != nil {
		return err
	}
	for name, draw := range pictures {
		picture, err := draw(s)
		if err != nil {
			return fmt.Errorf("draw %s from %s: %w", name, figures, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), picture, 0o644); err != nil { // #nosec G306 -- for everybody to read
			return err
		}
	}
	return nil
}
