package widget

import (
	"strings"

	"charm.land/bubbles/v2/viewport"
)

// Pager is a text that can be longer than its place on the screen. At its end it
// follows what is added; elsewhere it stays where it is read.
type Pager struct {
	view   viewport.Model
	lines  []string
	follow bool
}

// NewPager is an empty text, at its end or at its beginning.
func NewPager(follow bool) Pager { return Pager{view: viewport.New(), follow: follow} }

// SetSize sets how much can be seen.
func (p *Pager) SetSize(cells, lines int) {
	p.view.SetWidth(max(cells, 1))
	p.view.SetHeight(max(lines, 1))
	p.settle()
}

// SetLines sets the text. So many lines were taken away at its beginning since it
// was set before.
func (p *Pager) SetLines(lines []string, gone int) {
	offset := p.view.YOffset() - gone
	p.lines = lines
	p.view.SetContentLines(lines)
	p.view.SetYOffset(offset)
	p.settle()
}

func (p *Pager) settle() {
	if p.follow {
		p.view.GotoBottom()
	}
}

// Scroll moves so many lines down, or up.
func (p *Pager) Scroll(by int) {
	p.view.SetYOffset(p.view.YOffset() + by)
	p.follow = p.view.AtBottom()
}

// Show goes to where a line is in the middle.
func (p *Pager) Show(line int) {
	p.view.SetYOffset(line - p.view.Height()/2)
	p.follow = false
}

// Reveal scrolls as little as possible for a line to be seen.
func (p *Pager) Reveal(line int) {
	p.view.SetYOffset(Window(p.view.YOffset(), line, len(p.lines), p.view.Height()))
	p.follow = false
}

// Top goes to the beginning.
func (p *Pager) Top() {
	p.view.GotoTop()
	p.follow = p.view.AtBottom()
}

// End goes to the end, which is followed.
func (p *Pager) End() {
	p.follow = true
	p.settle()
}

// Follows says whether what is added will be seen.
func (p *Pager) Follows() bool { return p.follow }

// Height is how many lines can be seen: a page.
func (p *Pager) Height() int { return p.view.Height() }

// Lines is the text.
func (p *Pager) Lines() []string { return p.lines }

// Visible are those of the lines that can be seen, when they are a newer version
// of the text.
func (p *Pager) Visible(lines []string) []string {
	first := min(p.view.YOffset(), len(lines))
	return lines[first:min(first+p.view.Height(), len(lines))]
}

// View draws the lines that can be seen, each as the style says.
func (p *Pager) View(style func(i int, line string) string) []string {
	first := p.view.YOffset()
	end := min(first+p.view.Height(), len(p.lines))
	shown := make([]string, 0, max(end-first, 0))
	for i := first; i < end; i++ {
		shown = append(shown, style(i, strings.ReplaceAll(p.lines[i], "\t", "    ")))
	}
	return shown
}
