package theme_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/theme"
)

// styles are the styles of a theme by their names.
func styles(t *theme.Theme) (names []string, all map[string]theme.Style) {
	names = []string{
		"title", "muted", "cursor", "selected", "match", "alarm", "error", "warn", "good",
		"running", "completed", "failed", "cancelled", "scheduled", "available", "context red", "banner red",
	}
	values := []theme.Style{
		t.Title, t.Muted, t.Cursor, t.Selected, t.Match, t.Alarm, t.Error, t.Warn, t.Good,
		t.State(jobq.StateRunning), t.State(jobq.StateCompleted), t.State(jobq.StateFailed), t.State(jobq.StateCancelled), t.State(jobq.StateScheduled),
		t.State(jobq.StateAvailable), t.Context("red"), t.Banner("red"),
	}
	all = make(map[string]theme.Style, len(names))
	for i, name := range names {
		all[name] = values[i]
	}
	return names, all
}

// What each style is for each background and profile is as it was when somebody
// last looked at it.
func TestStyles(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, name := range []string{"", "dark", "light", "mono"} {
		for _, profile := range []colorprofile.Profile{
			colorprofile.Unknown, colorprofile.ASCII, colorprofile.ANSI, colorprofile.ANSI256, colorprofile.TrueColor,
		} {
			made, err := theme.New(theme.Settings{Name: name, Profile: profile})
			require.NoError(t, err)
			names, all := styles(made)
			for _, style := range names {
				text := strings.ReplaceAll(all[style].Render("text"), "\x1b", "^[")
				fmt.Fprintf(&got, "%s %s %s: %s\n", made.Name, profile, style, text)
			}
		}
	}
	const path = "testdata/styles.txt"
	if os.Getenv("JOBQ_GOLDEN") == "write" {
		require.NoError(t, os.WriteFile(path, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String(), "JOBQ_GOLDEN=write go test ./tui/theme writes it anew")
}

// A theme without colours has none, whatever the terminal can show; a bare one
// has no styles at all, and no style makes something of nothing.
func TestWithoutColours(t *testing.T) {
	t.Parallel()
	for _, settings := range []theme.Settings{
		{Name: "mono"},
		{Name: "mono", Profile: colorprofile.TrueColor},
		{Name: "dark", Profile: colorprofile.ASCII},
		{Name: "light", Profile: colorprofile.ASCII},
		{Bare: true},
		{Name: "dark", Bare: true},
	} {
		made, err := theme.New(settings)
		require.NoError(t, err)
		names, all := styles(made)
		for _, name := range names {
			require.NotRegexp(t, `[\[;](3|4|9|10)\d`, all[name].Render("text"), name)
			require.Empty(t, all[name].Render(""))
			if settings.Bare {
				require.Equal(t, "text", all[name].Render("text"))
			}
		}
	}
}

// The operator's choice is stronger than the background, and must exist.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, background, want string }{
		{"", "", "auto"}, {"auto", "light", "light"}, {"", "dark", "dark"}, {"dark", "light", "dark"}, {"mono", "dark", "mono"},
	} {
		made, err := theme.New(theme.Settings{Name: test.name, Background: test.background})
		require.NoError(t, err)
		require.Equal(t, test.want, made.Name)
	}
	_, err := theme.New(theme.Settings{Name: "pink"})
	require.ErrorContains(t, err, `no theme "pink"; there are auto, dark, light, mono`)
}
