package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/jobq-dev/jobq/internal/measure"
)

// kept is a sheet in a file, so that one scenario can be measured again
// without the others.
type kept struct {
	Runs    map[string]*runOf `json:"runs"`
	Figures []keptFigure      `json:"figures"`
	Charts  []keptChart       `json:"charts"`
}

type keptFigure struct {
	Scenario  string    `json:"scenario"`
	Test      string    `json:"test"`
	Contender string    `json:"contender"`
	Figure    string    `json:"figure"`
	Values    []float64 `json:"values"`
}

type keptChart struct {
	Scenario  string         `json:"scenario"`
	Test      string         `json:"test"`
	Contender string         `json:"contender"`
	Unit      string         `json:"unit"`
	Series    measure.Series `json:"series"`
}

// dataFile stands beside the report.
func dataFile(report string) string { return strings.TrimSuffix(report, ".md") + ".json" }

// load reads what was kept, if anything was.
func (s *sheet) load(file string) error {
	content, err := os.ReadFile(file) // #nosec G304 -- the user's own choice
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var k kept
	if err := json.Unmarshal(content, &k); err != nil {
		return err
	}
	for _, f := range k.Figures {
		for _, value := range f.Values {
			s.put(entry{f.Scenario, f.Test, f.Contender, f.Figure}, value)
		}
	}
	for _, c := range k.Charts {
		s.charts = append(s.charts, chart{c.Scenario, c.Test, c.Contender, c.Unit, c.Series})
	}
	for scenario, run := range k.Runs {
		s.runs[scenario] = run
	}
	return nil
}

// save writes the sheet.
func (s *sheet) save(file string) error {
	k := kept{Runs: s.runs}
	for _, e := range s.order {
		k.Figures = append(k.Figures, keptFigure{e.scenario, e.test, e.contender, e.figure, s.values[e]})
	}
	for _, c := range s.charts {
		k.Charts = append(k.Charts, keptChart{c.scenario, c.test, c.contender, c.unit, c.series})
	}
	content, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o644) // #nosec G306 -- for everybody to read
}

// forget removes a scenario that is about to be measured again.
func (s *sheet) forget(scenario string) {
	s.order = slices.DeleteFunc(s.order, func(e entry) bool {
		if e.scenario == scenario {
			delete(s.values, e)
		}
		return e.scenario == scenario
	})
	s.charts = slices.DeleteFunc(s.charts, func(c chart) bool { return c.scenario == scenario })
	delete(s.runs, scenario)
}
