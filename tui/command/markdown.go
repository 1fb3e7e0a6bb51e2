package command

import (
	"fmt"
	"strings"
)

// Markdown is docs/tui-keys.md: the registry of commands as a page.
func Markdown() string {
	var page strings.Builder
	page.WriteString("# Keys of `jobq tui`\n\nGenerated from the registry of commands: `JOBQ_GOLDEN=write go test ./tui/command`. " +
		"`?` shows the same, and `:` takes a command by its name.\n\n| keys | command | where | what it does |\n|---|---|---|---|\n")
	for _, c := range All() {
		where := "everywhere"
		if c.Screens != nil {
			places := make([]string, len(c.Screens))
			for i, s := range c.Screens {
				places[i] = s
				if s == Job {
					places[i] = "a job"
				}
			}
			where = strings.Join(places, ", ")
		}
		what := c.Help
		if c.Class == Destructive {
			what += "; always asks"
		}
		keys := make([]string, len(c.Keys))
		for i, key := range c.Keys {
			keys[i] = "`" + key + "`"
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", strings.Join(keys, " "), c.ID, where, what)
	}
	return page.String()
}
