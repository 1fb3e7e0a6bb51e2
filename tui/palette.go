package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/theme"
)

// filtered is a filter that the operator has typed.
type filtered string

// filter lets the operator type which jobs to show.
func (m *Model) filter() tea.Msg {
	text := ""
	if list, ok := m.screens[screen.Jobs].(*screen.JobList); ok {
		text = list.Match()
	}
	return request.Prompt{
		Title: "Filter", Text: text, Hints: fieldHints,
		Accept: func(text string) (tea.Msg, error) { return filtered(text), checkFilter(text) },
	}
}

// checkFilter says what is wrong with a filter.
func checkFilter(text string) error {
	_, err := filter.Parse(text)
	return err
}

// fieldHints are the fields that the last word may become.
func fieldHints(text string) []string {
	word := text[strings.LastIndex(text, " ")+1:]
	word = strings.TrimLeft(word, "-!")
	var hints []string
	for _, field := range filter.Fields() {
		if strings.HasPrefix(field.Name, word) || strings.HasPrefix(word, field.Name) {
			hints = append(hints, fmt.Sprintf("%-10s %s", field.Name+":", field.Help))
		}
	}
	return hints
}

// palette lets the operator type a command.
func (m *Model) palette() tea.Msg {
	return request.Prompt{Title: "Command", Hints: m.commandHints, Accept: m.typed}
}

func (m *Model) commandHints(text string) []string {
	if name, found := strings.CutPrefix(text, "ctx "); found {
		return m.env.contextNames(name)
	}
	if name, found := strings.CutPrefix(text, "theme "); found {
		return slices.DeleteFunc(theme.Names(), func(known string) bool { return !strings.HasPrefix(known, name) })
	}
	var hints []string
	for _, c := range m.env.commands {
		if strings.HasPrefix(c.ID, text) {
			hints = append(hints, fmt.Sprintf("%-14s %s  %s", c.ID, strings.Join(c.Keys, " "), c.Help))
		}
	}
	if text == "" || strings.HasPrefix("job ", text) {
		hints = append(hints, "job ID         open a job", "jobs FILTER    show the jobs that match")
	}
	for _, hint := range []string{"ctx NAME       go to another database of your settings", "theme NAME     " + strings.Join(theme.Names(), ", ")} {
		if strings.HasPrefix(hint, text) {
			hints = append(hints, hint)
		}
	}
	return hints
}

// typed is what a text typed into the palette asks for.
func (m *Model) typed(text string) (tea.Msg, error) {
	verb, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case verb == "job" || strings.HasPrefix(verb, "job/"):
		number := strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(text, "job"), "/"))
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil || id < 1 {
			return nil, fmt.Errorf("job: a number is needed, such as job 4711")
		}
		return request.Job{ID: id}, nil
	case verb == "ctx":
		return request.Context{Name: rest}, m.checkContext(rest)
	case verb == "theme":
		_, err := theme.New(theme.Settings{Name: rest})
		return request.Theme{Name: rest}, err
	case verb == "jobs" && rest != "":
		return request.Jobs{Match: rest}, checkFilter(rest)
	}
	switch c := m.env.commands.Find(text); {
	case c == nil:
		return nil, fmt.Errorf("no command %q; tab completes", text)
	case !c.On(string(m.at)):
		return nil, fmt.Errorf("%s: not on this screen", c.ID)
	}
	return request.Command{ID: text}, nil
}
