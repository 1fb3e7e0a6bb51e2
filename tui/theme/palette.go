package theme

import (
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
)

// palette is what the colours of a theme are.
type palette struct{ red, green, yellow, blue, magenta, cyan, muted lipgloss.Style }

// paletteOf is the palette of a theme. Colours are the terminal's own sixteen,
// which its owner has chosen to be readable: bright ones on dark ground; on
// light ground those that can be read there, which yellow and cyan cannot.
//
// Muted text is faint where nothing else is known. Many terminals draw faint
// text too weakly to be read, and so a grey takes its place where the terminal
// has one and the background is known.
func paletteOf(name string, profile colorprofile.Profile) palette {
	base := lipgloss.NewStyle()
	of := func(code string) lipgloss.Style { return base.Foreground(lipgloss.Color(code)) }
	p := palette{of("1"), of("2"), of("3"), of("4"), of("5"), of("6"), base.Faint(true)}
	shade := lipgloss.Complete(profile)
	switch name {
	case "dark":
		p = palette{of("9"), of("10"), of("11"), of("12"), of("13"), of("14"), p.muted}
		if profile >= colorprofile.ANSI256 {
			p.muted = base.Foreground(shade(nil, lipgloss.Color("246"), lipgloss.Color("#949494")))
		}
	case "light":
		p.yellow, p.cyan, p.muted = p.magenta, p.blue.Bold(true), of("8")
		if profile >= colorprofile.ANSI256 {
			p.muted = base.Foreground(shade(nil, lipgloss.Color("241"), lipgloss.Color("#626262")))
		}
	case "mono":
		p = palette{base, base, base, base, base, base, base.Faint(true)}
	}
	if profile == colorprofile.ASCII || profile == colorprofile.NoTTY { // NO_COLOR: bold and reverse stay
		p = palette{base, base, base, base, base, base, p.muted}
		if name == "light" {
			p.muted = base.Faint(true)
		}
	}
	return p
}
