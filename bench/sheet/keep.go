package sheet

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
	Runs    map[string]*Run `json:"runs"`
	Figures []keptFigure    `json:"figures"`
	Charts  []keptChart     `json:"charts"`
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

// DataFile stands beside the report.
func DataFile(report string) string { return strings.TrimSuffix(report, ".md") + ".json" }

// Load reads what was kept, if anything was.
func (s *Sheet) Load(file string) error {
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
			s.Put(Entry{f.Scenario, f.Test, f.Contender, f.Figure}, value)
		}
	}
	for _, c := range k.Charts {
		s.charts = append(s.charts, Chart{c.Scenario, c.Test, c.Contender, c.Unit, c.Series})
	}
	for scenario, run := range k.Runs {
		s.Runs[scenario] = run
	}
	return nil
}

// Save writes the sheet.
func (s *Sheet) Save(file string) error {
	k := kept{Runs: s.Runs}
	for _, e := range s.order {
		k.Figures = append(k.Figures, keptFigure{e.Scenario, e.Test, e.Contender, e.Figure, s.values[e]})
	}
	for _, c := range s.charts {
		k.Charts = append(k.Charts, keptChart{c.Scenario, c.Test, c.Contender, c.Unit, c.Series})
	}
	content, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o644) // #nosec G306 -- for everybody to read
}

// Forget removes a scenario that is about to be measured again.
func (s *Sheet) Forget(scenario string) {
	s.order = slices.DeleteFunc(s.order, func(e Entry) bool {
		if e.Scenario == scenario {
			delete(s.values, e)
		}
		return e.Scenario == scenario
	})
	s.charts = slices.DeleteFunc(s.charts, func(c Chart) bool { return c.Scenario == scenario })
	delete(s.Runs, scenario)
}
