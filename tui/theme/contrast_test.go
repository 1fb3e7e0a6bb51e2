package theme_test

import (
	"image/color"
	"math"
	"regexp"
	"strconv"
	"testing"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/tui/theme"
)

// grounds are backgrounds that terminals have by default, or in themes that many
// use: of each kind the two ends.
var grounds = map[string][]string{
	"dark":  {"#000000", "#1e1e1e", "#2e3440"},
	"light": {"#ffffff", "#fafafa", "#fdf6e3"},
}

// luminance is the relative luminance of a colour, as WCAG 2.1 defines it.
func luminance(c color.Color) float64 {
	linear := func(part uint32) float64 {
		v := float64(part) / 0xffff
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	r, g, b, _ := c.RGBA()
	return 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
}

// contrast is the contrast of two colours, from 1 to 21.
func contrast(a, b color.Color) float64 {
	one, other := luminance(a), luminance(b)
	return (math.Max(one, other) + 0.05) / (math.Min(one, other) + 0.05)
}

// foreground is the colour that a style gives text; nil for the terminal's own.
func foreground(style theme.Style) color.Color {
	found := regexp.MustCompile(`38;(?:2;(\d+);(\d+);(\d+)|5;(\d+))m`).FindStringSubmatch(style.Render("text"))
	if found == nil {
		return nil
	}
	number := func(i int) uint8 {
		n, _ := strconv.ParseUint(found[i], 10, 8)
		return uint8(n)
	}
	if found[4] != "" {
		return ansi.IndexedColor(number(4))
	}
	return color.RGBA{number(1), number(2), number(3), 255}
}

// Each named style can be read on each background of its kind: at least 4.5 to 1,
// which WCAG asks of text. Reversed text has the same two colours. Method: what a
// style renders is read back, for the profiles in which the colours are ours.
func TestContrast(t *testing.T) {
	t.Parallel()
	for background, colours := range grounds {
		for _, profile := range []colorprofile.Profile{colorprofile.ANSI256, colorprofile.TrueColor} {
			made, err := theme.New(theme.Settings{Background: background, Profile: profile})
			require.NoError(t, err)
			names, all := styles(made)
			for _, name := range []string{"red", "green", "yellow", "blue", "magenta", "cyan"} {
				all["context "+name], all["banner "+name] = made.Context(name), made.Banner(name)
				names = append(names, "context "+name, "banner "+name)
			}
			coloured := 0
			for _, name := range names {
				text := foreground(all[name])
				if text == nil {
					require.NotRegexp(t, `[\[;](2|3\d|9\d)[;m]`, all[name].Render("text"), "%s: neither faint nor one of the sixteen", name)
					continue
				}
				coloured++
				for _, ground := range colours {
					require.GreaterOrEqual(t, contrast(text, lipgloss.Color(ground)), 4.5, "%s %s on %s %s", profile, name, background, ground)
				}
			}
			require.Greater(t, coloured, 20)
		}
	}
}
