package sheet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// LoadFor reads what was kept for a page that is to be written anew, and refuses if the page has scenarios, by their titles, that
// the file has not: the page would lose them.
func (s *Sheet) LoadFor(page string, titles map[string]string) error {
	if err := s.Load(DataFile(page)); err != nil {
		return err
	}
	content, err := os.ReadFile(page) // #nosec G304 -- the user's own choice
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var lost []string
	for _, scenario := range slices.Sorted(maps.Keys(titles)) {
		if s.Runs[scenario] == nil && strings.Contains(string(content), heading(titles[scenario])) {
			lost = append(lost, scenario)
		}
	}
	if len(lost) > 0 {
		return fmt.Errorf("%s would lose %s, which %s has not: write to another file", page, strings.Join(lost, ", "), DataFile(page))
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
	content, err := k.lines()
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644) // #nosec G306 -- for everybody to read
}

// lines is JSON with a figure a line, so that a change shows what was measured again.
func (k kept) lines() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("{\"runs\": {\n")
	for i, name := range slices.Sorted(maps.Keys(k.Runs)) {
		if i > 0 {
			out.WriteString(",\n")
		}
		run, err := json.Marshal(k.Runs[name])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%q: %s", name, run)
	}
	out.WriteString("\n}")
	if err := errors.Join(writeLines(&out, "figures", k.Figures), writeLines(&out, "charts", k.Charts)); err != nil {
		return nil, err
	}
	out.WriteString("}\n")
	return out.Bytes(), nil
}

func writeLines[T any](out *bytes.Buffer, name string, values []T) error {
	fmt.Fprintf(out, ", %q: [\n", name)
	for i, value := range values {
		if i > 0 {
			out.WriteString(",\n")
		}
		line, err := json.Marshal(value)
		if err != nil {
			return err
		}
		out.Write(line)
	}
	out.WriteString("\n]")
	return nil
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
