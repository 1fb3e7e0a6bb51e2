package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"time"
)

// frame is what was on the screen from a moment on. The last one is the end
// and has no screen.
type frame struct {
	at     time.Duration
	screen string
}

// The size of a cell and of the margin, in pixels.
const (
	cellWidth  = 8
	cellHeight = 17
	margin     = 10
)

const fonts = `ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace`

// render makes a picture that plays the frames in a loop, without scripts:
// GitHub shows such ones. The frames lie side by side, and the picture's window
// jumps from one to the next. Each different line is drawn once and used often.
func render(frames []frame, cells, lines int) []byte {
	width, height := cells*cellWidth+2*margin, lines*cellHeight+2*margin
	var defs, strip, moves bytes.Buffer
	ids := make(map[string]int)
	total := frames[len(frames)-1].at
	for i, f := range frames[:len(frames)-1] {
		fmt.Fprintf(&moves, "%.3f%%{transform:translateX(%dpx)}", 100*float64(f.at)/float64(total), -i*width)
		fmt.Fprintf(&strip, `<svg x="%d">`, i*width)
		var now style
		for y, line := range strings.Split(strings.TrimRight(f.screen, "\n"), "\n") {
			drawn := drawLine(parseLine(line, &now))
			if drawn == "" {
				continue
			}
			id, known := ids[drawn]
			if !known {
				id = len(ids)
				ids[drawn] = id
				fmt.Fprintf(&defs, `<g id="l%d">%s</g>`, id, drawn)
			}
			fmt.Fprintf(&strip, `<use href="#l%d" y="%d"/>`, id, y*cellHeight)
		}
		strip.WriteString("</svg>\n")
	}
	var image bytes.Buffer
	fmt.Fprintf(&image, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %[1]d %[2]d\" role=\"img\" aria-label=\"A recording of jobq tui\">\n", width, height)
	fmt.Fprintf(&image, "<style>text{font:14px %s;white-space:pre;fill:%s}.b{font-weight:bold}.d{opacity:.6}\n", fonts, frontColour)
	fmt.Fprintf(&image, "#strip{animation:play %.1fs step-end infinite}@keyframes play{%s}</style>\n", total.Seconds(), &moves)
	fmt.Fprintf(&image, "<defs>%s</defs>\n<rect width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\"/>\n", &defs, width, height, backColour)
	fmt.Fprintf(&image, "<svg x=\"%d\" y=\"%[1]d\" width=\"%d\" height=\"%d\"><g id=\"strip\">\n%s</g></svg>\n</svg>\n", margin, cells*cellWidth, lines*cellHeight, &strip)
	return image.Bytes()
}

// drawLine draws the spans of a line, each as wide as its cells whatever the
// reader's font has for its characters.
func drawLine(spans []span) string {
	var drawn strings.Builder
	for _, s := range spans {
		front, back := s.style.colours()
		wide := len([]rune(s.text)) * cellWidth
		if back != "" {
			fmt.Fprintf(&drawn, `<rect x="%d" width="%d" height="%d" fill="%s"/>`, s.column*cellWidth, wide, cellHeight, back)
		}
		column := s.column
		for _, word := range strings.SplitAfter(s.text, "  ") { // renderers fold spaces
			drawText(&drawn, column, word, s.style, front)
			column += len([]rune(word))
		}
	}
	return drawn.String()
}

// drawText draws a text that has no two spaces within.
func drawText(drawn *strings.Builder, column int, text string, look style, colour string) {
	trimmed := strings.TrimLeft(text, " ")
	column += len(text) - len(trimmed)
	if trimmed = strings.TrimRight(trimmed, " "); trimmed == "" {
		return
	}
	var class []string
	if look.bold {
		class = append(class, "b")
	}
	if look.dim {
		class = append(class, "d")
	}
	fmt.Fprintf(drawn, `<text x="%d" y="13" textLength="%d"`, column*cellWidth, len([]rune(trimmed))*cellWidth)
	if len(class) > 0 {
		fmt.Fprintf(drawn, ` class="%s"`, strings.Join(class, " "))
	}
	if colour != "" {
		fmt.Fprintf(drawn, ` style="fill:%s"`, colour)
	}
	drawn.WriteByte('>')
	_ = xml.EscapeText(drawn, []byte(trimmed)) // a strings.Builder takes everything
	drawn.WriteString("</text>")
}
