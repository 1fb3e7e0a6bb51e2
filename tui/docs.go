package tui

import (
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq/tui/screen"
)

// KeysMarkdown is docs/keys.md: the registry of commands as a page.
func KeysMarkdown() string {
	var page strings.Builder
	page.WriteString("# Keys of `jobq tui`\n\nGenerated from the registry of commands: `JOBQ_GOLDEN=write go test ./tui`. " +
		"`?` shows the same, and `:` takes a command by its name.\n\n| keys | command | where | what it does |\n|---|---|---|---|\n")
	for _, c := range commands() {
		where := "everywhere"
		if c.screens != nil {
			places := make([]string, len(c.screens))
			for i, s := range c.screens {
				places[i] = strings.Replace(string(s), "job", "a job", 1)
				if s == screen.Jobs {
					places[i] = "jobs"
				}
			}
			where = strings.Join(places, ", ")
		}
		what := c.help
		if c.class == destructive {
			what += "; always asks"
		}
		keys := make([]string, len(c.keys))
		for i, key := range c.keys {
			keys[i] = "`" + key + "`"
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", strings.Join(keys, " "), c.id, where, what)
	}
	return page.String()
}
