package theme

import "charm.land/lipgloss/v2"

// Glyphs are the characters that not every terminal has.
type Glyphs struct {
	Rule  string // lines between parts
	Side  string // between two columns
	Bar   rune   // the filled part of a bar
	Empty rune   // the rest of it
	Up    string
	Live  string // events arrive
	Off   string // the database does not answer
	Poll  string // the database is asked again and again
	Arrow string
	More  string // where text was cut
	Cross string // between the steps of a path
	Fork  string // a branch of a tree, with others below it
	Last  string // the last branch
	Pause string
	Spark []rune // heights of a small chart, the lowest first
	Box   lipgloss.Border
}

var unicode = Glyphs{
	Rule: "─", Side: "│", Bar: '█', Empty: '░', Up: "▲", Live: "●", Off: "○", Poll: "●", Arrow: "→", More: "…", Cross: "▸", Fork: "├", Last: "└",
	Pause: "‖", Spark: []rune("▁▂▃▄▅▆▇█"), Box: lipgloss.NormalBorder(),
}

var ascii = Glyphs{
	Rule: "-", Side: "|", Bar: '#', Empty: '.', Up: "^", Live: "*", Off: "o", Poll: "*", Arrow: "->", More: "~", Cross: ">", Fork: "|", Last: "`",
	Pause: "|", Spark: []rune("_.-=+*%#"), Box: lipgloss.ASCIIBorder(),
}

// IsASCII says whether only ASCII characters are drawn.
func (g Glyphs) IsASCII() bool { return g.Rule == ascii.Rule }
