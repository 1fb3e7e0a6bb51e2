package widget

import (
	"strings"

	"charm.land/bubbles/v2/progress"
)

// Spark draws a line of values, the highest of which fills a cell. With fewer
// cells than values it keeps the last.
func (p *Painter) Spark(values []int64, cells int) string {
	values = values[max(len(values)-cells, 0):]
	top := int64(1)
	for _, value := range values {
		top = max(top, value)
	}
	var line strings.Builder
	for _, value := range values {
		if value <= 0 {
			line.WriteByte(' ')
			continue
		}
		line.WriteRune(p.Theme.Spark[int((value*int64(len(p.Theme.Spark))-1)/top)])
	}
	return line.String()
}

// Chart draws values as lines of columns, the highest of which fills them all.
func (p *Painter) Chart(values []int64, height int) []string {
	runes := p.Theme.Spark
	top := int64(1)
	for _, value := range values {
		top = max(top, value)
	}
	lines := make([]string, height)
	for row := range lines {
		var line strings.Builder
		for _, value := range values {
			level := int(value*int64(height*len(runes))/top) - (height-1-row)*len(runes)
			switch {
			case level >= len(runes):
				line.WriteRune(runes[len(runes)-1])
			case level > 0:
				line.WriteRune(runes[level-1])
			default:
				line.WriteByte(' ')
			}
		}
		lines[row] = line.String()
	}
	return lines
}

// Progress draws a share, 0 to 1, of cells.
func (p *Painter) Progress(share float64, cells int) string {
	bar := progress.New(progress.WithWidth(cells), progress.WithoutPercentage(), progress.WithFillCharacters(p.Bar, p.Empty))
	bar.FullColor, bar.EmptyColor = nil, nil // the characters say it
	return bar.ViewAs(min(max(share, 0), 1))
}
