package theme

import (
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
)

// palette is what the colours of a theme are.
type palette struct{ red, green, yellow, blue, magenta, cyan, muted lipgloss.Style }

// paletteOf is the palette of a theme.
//
// Where the background is known and the terminal has more than sixteen colours, they
// are ours, and each can be read on that background: its contrast is 4.5 to 1 at
// least (TestContrast). Elsewhere they are the terminal's own sixteen, which its
// owner has chosen: bright ones on dark ground; on light ground those that can be
// read there, which yellow and cyan cannot.
//
// Muted text is faint where nothing else is known. Many terminals draw faint
// text too weakly to be read, and so a grey takes its place where the terminal
// has one and the background is known.
func paletteOf(name string, profile colorprofile.Profile) palette {
	base := lipgloss.NewStyle()
	of := func(code string) lipgloss.Style { return base.Foreground(lipgloss.Color(code)) }
	faint := base.Faint(true)
	switch {
	case name == "mono":
		return palette{base, base, base, base, base, base, faint}
	case profile == colorprofile.ASCII, profile == colorprofile.NoTTY: // NO_COLOR: bold and reverse stay
		return palette{base, base, base, base, base, base, faint}
	case name == "dark" && profile == colorprofile.TrueColor:
		return palette{of("#ff7b72"), of("#7ee787"), of("#f0c674"), of("#79b8ff"), of("#e3a6ff"), of("#76e3ea"), of("#a8a8a8")}
	case name == "dark" && profile == colorprofile.ANSI256:
		return palette{of("210"), of("114"), of("221"), of("111"), of("183"), of("80"), of("248")}
	case name == "dark":
		return palette{of("9"), of("10"), of("11"), of("12"), of("13"), of("14"), faint}
	case name == "light" && profile == colorprofile.TrueColor:
		return palette{of("#b00020"), of("#00602a"), of("#7a4f00"), of("#0b4fb3"), of("#8a1a8a"), of("#005f6b"), of("#5c5c5c")}
	case name == "light" && profile == colorprofile.ANSI256:
		return palette{of("124"), of("22"), of("94"), of("25"), of("90"), of("23"), of("240")}
	case name == "light":
		return palette{of("1"), of("2"), of("5"), of("4"), of("5"), of("4").Bold(true), of("8")}
	}
	return palette{of("1"), of("2"), of("3"), of("4"), of("5"), of("6"), faint}
}
