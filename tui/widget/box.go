package widget

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// Box draws lines in a frame with a title, at most cells wide. For a screen that
// is read aloud it is the title and the lines.
func (p *Painter) Box(title string, lines []string, cells int) []string {
	if p.Plain {
		return append([]string{title}, lines...)
	}
	inner := Width(title) + 2
	for _, line := range lines {
		inner = max(inner, Width(line))
	}
	inner = min(inner, cells-4)
	body := make([]string, len(lines))
	for i, line := range lines {
		body[i] = p.Fit(line, inner)
	}
	b := p.Theme.Box
	head := b.TopLeft + b.Top + " " + p.Title.Render(p.Fit(title, min(Width(title), inner-2))) + " "
	head += strings.Repeat(b.Top, max(inner+3-Width(head), 0)) + b.TopRight
	frame := lipgloss.NewStyle().Border(b).BorderTop(false).Padding(0, 1).Render(strings.Join(body, "\n"))
	return append([]string{head}, strings.Split(frame, "\n")...)
}

// Over puts a box over the middle of a screen, whose other parts stay as they
// are, and says where its first cell is. Only the lines that the box lies on are
// taken apart into cells, which is the expensive part.
func Over(screen, box []string, cells int) (covered []string, x, y int) {
	x = max((cells-Width(box[0]))/2, 0)
	y = max((len(screen)-len(box))/2, 0)
	box = box[:min(len(box), len(screen))]
	below := lipgloss.NewLayer(strings.Join(screen[y:y+len(box)], "\n"))
	layers := lipgloss.NewCompositor(below, lipgloss.NewLayer(strings.Join(box, "\n")).X(x).Z(1))
	lines := strings.Split(lipgloss.NewCanvas(cells, len(box)).Compose(layers).Render(), "\n")
	covered = append([]string(nil), screen...)
	copy(covered[y:y+len(box)], lines)
	return covered, x, y
}
