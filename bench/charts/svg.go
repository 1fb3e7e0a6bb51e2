package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq/bench/sheet"
)

// width is that of all pictures, in pixels.
const width = 760

// look gives a picture a background of its own, so that it can be read wherever it stands. Its colours follow the reader's
// light or dark theme. It has no CSS variables, which many viewers of SVG do not know.
const look = `<style>
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans","DejaVu Sans",sans-serif;font-size:13px;fill:#1f2328}
.title{font-size:16px;font-weight:600}.small{font-size:11px}.end{text-anchor:end}.over{stroke-width:2}
.back{fill:#fff}.weak,.other{fill:#59636e}.grid{stroke:#d1d9e0}.range{stroke:#1f2328}
.a{fill:#0969da}.b{fill:#bc4c00}.c{fill:#1a7f37}.d{fill:#8250df}
.over{fill:none}.over.a{stroke:#0969da}.over.b{stroke:#bc4c00}.over.c{stroke:#1a7f37}.over.d{stroke:#8250df}
@media(prefers-color-scheme:dark){
text{fill:#f0f6fc}
.back{fill:#0d1117}.weak,.other{fill:#9198a1}.grid{stroke:#3d444d}.range{stroke:#f0f6fc}
.a{fill:#58a6ff}.b{fill:#f0883e}.c{fill:#3fb950}.d{fill:#bc8cff}
.over{fill:none}.over.a{stroke:#58a6ff}.over.b{stroke:#f0883e}.over.c{stroke:#3fb950}.over.d{stroke:#bc8cff}
}
</style>
`

// colours are the classes of the systems: the same in all pictures.
var colours = map[string]string{"jobq": "a", "pg-boss": "b", "graphile-worker": "c", "river": "d"}

// colour is a system's class.
func colour(system string) string {
	if class, ok := colours[system]; ok {
		return class
	}
	return "other"
}

// name is a system's name as its authors write it.
func name(system string) string {
	if system == "river" {
		return "River"
	}
	return system
}

// picture is an SVG in the making.
type picture struct{ bytes.Buffer }

// text writes text as text, so that it can be found, copied and read aloud.
func (p *picture) text(x, y float64, class, text string) {
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" class="%s">`, x, y, class)
	_ = xml.EscapeText(p, []byte(text)) // a buffer takes everything
	p.WriteString("</text>\n")
}

// finish puts a frame around what was drawn: a title, which is also read aloud, and below it what the figures are.
func (p *picture) finish(height int, title string, notes ...string) []byte {
	var whole picture
	fmt.Fprintf(&whole, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %[1]d %[2]d\" role=\"img\" aria-labelledby=\"title\">\n", width, height)
	whole.WriteString(`<title id="title">`)
	_ = xml.EscapeText(&whole, []byte(title)) // a buffer takes everything
	whole.WriteString("</title>\n" + look)
	fmt.Fprintf(&whole, "<rect width=\"%d\" height=\"%d\" rx=\"6\" class=\"back\"/>\n", width, height)
	whole.text(16, 28, "title", title)
	whole.Write(p.Bytes())
	for i, note := range notes {
		whole.text(16, float64(height-12-16*(len(notes)-1-i)), "weak small", note)
	}
	whole.WriteString("</svg>\n")
	return whole.Bytes()
}

// source says when, from what and where a scenario was measured.
func source(run *sheet.Run) string {
	machine, _, _ := strings.Cut(strings.TrimPrefix(run.Environment, "- Machine: "), "\n")
	machine, _, _ = strings.Cut(machine, ", Linux")
	return fmt.Sprintf("Measured %s, commit %s, on one machine for server and clients: %s.", run.Started.Format("2006-01-02"), run.Commit, machine)
}
