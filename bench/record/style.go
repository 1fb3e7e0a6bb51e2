package main

import (
	"fmt"
	"strconv"
	"strings"
)

// style is how a run of characters looks.
type style struct {
	bold, dim, reverse bool
	front, back        string // colours; empty for the terminal's own
}

// span is characters of one style, from a column on.
type span struct {
	column int
	text   string
	style  style
}

// The colours of the terminal in the picture.
const (
	frontColour = "#d0d4dc"
	backColour  = "#14171d"
)

var palette = [16]string{
	"#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#abb2bf",
	"#5c6370", "#ef7d88", "#a9d48a", "#f0cd8c", "#75bdf7", "#d18fe6", "#6bc7d3", "#ffffff",
}

// parseLine splits a line as tmux's `capture-pane -e` writes it: text, and
// "ESC [ … m". Other sequences it does not write. The style goes on from line
// to line.
func parseLine(line string, now *style) (spans []span) {
	column := 0
	for line != "" {
		text, rest, found := strings.Cut(line, "\x1b[")
		if text != "" {
			spans = append(spans, span{column, text, *now})
			column += len([]rune(text))
		}
		if !found {
			break
		}
		parameters, after, _ := strings.Cut(rest, "m")
		now.apply(strings.FieldsFunc(parameters, func(char rune) bool { return char == ';' || char == ':' }))
		if parameters == "" {
			*now = style{}
		}
		line = after
	}
	return spans
}

// apply changes the style as the numbers of an SGR sequence say.
func (s *style) apply(numbers []string) {
	for i := 0; i < len(numbers); i++ {
		code, err := strconv.Atoi(numbers[i])
		if err != nil {
			return
		}
		switch {
		case code == 0:
			*s = style{}
		case code == 1:
			s.bold = true
		case code == 2:
			s.dim = true
		case code == 7:
			s.reverse = true
		case code == 22:
			s.bold, s.dim = false, false
		case code == 27:
			s.reverse = false
		case code >= 30 && code <= 37:
			s.front = palette[code-30]
		case code >= 90 && code <= 97:
			s.front = palette[code-90+8]
		case code >= 40 && code <= 47:
			s.back = palette[code-40]
		case code >= 100 && code <= 107:
			s.back = palette[code-100+8]
		case code == 39:
			s.front = ""
		case code == 49:
			s.back = ""
		case code == 38 || code == 48:
			colour, used := extended(numbers[i+1:])
			if i += used; code == 38 {
				s.front = colour
			} else {
				s.back = colour
			}
		}
	}
}

// extended is a colour of 256, or of 24 bits, and how many numbers it took.
func extended(numbers []string) (colour string, used int) {
	value := func(i int) int {
		if i >= len(numbers) {
			return 0
		}
		n, _ := strconv.Atoi(numbers[i]) // 0 is black
		return n
	}
	switch value(0) {
	case 2:
		return fmt.Sprintf("#%02x%02x%02x", value(1)&255, value(2)&255, value(3)&255), 4
	case 5:
		n := value(1) & 255
		switch {
		case n < 16:
			return palette[n], 2
		case n < 232: // a cube of six steps a side
			step := func(n int) int { return []int{0, 95, 135, 175, 215, 255}[n%6] }
			n -= 16
			return fmt.Sprintf("#%02x%02x%02x", step(n/36), step(n/6), step(n)), 2
		}
		grey := 8 + 10*(n-232)
		return fmt.Sprintf("#%02x%02x%02x", grey, grey, grey), 2
	}
	return "", 1
}

// colours are what is drawn with what.
func (s style) colours() (front, back string) {
	front, back = s.front, s.back
	if s.reverse {
		if front == "" {
			front = frontColour
		}
		if back == "" {
			back = backColour
		}
		return back, front
	}
	return front, back
}
