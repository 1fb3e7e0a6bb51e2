package widget

import "charm.land/bubbles/v2/spinner"

// Spinner is a character that moves while something is waited for. It takes its
// place in the turn from the clock, so that drawing changes nothing.
func (p *Painter) Spinner() string {
	turn := spinner.MiniDot
	if p.IsASCII() {
		turn = spinner.Line
	}
	return turn.Frames[int(p.Now().UnixNano()/int64(turn.FPS))%len(turn.Frames)]
}
