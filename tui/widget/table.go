package widget

import "strings"

// Column is one of a table. The one with the largest Priority is dropped first
// where there is no room; one column without a width takes what is left.
type Column struct {
	Title    string
	Cells    int // 0: what is left
	Right    bool
	Priority int // 0 is never dropped
}

// Left is a column whose text is at its left end.
func Left(title string, cells, priority int) Column {
	return Column{Title: title, Cells: cells, Priority: priority}
}

// Right is a column whose text is at its right end, as numbers are.
func Right(title string, cells, priority int) Column {
	return Column{Title: title, Cells: cells, Right: true, Priority: priority}
}

// ColumnsFor leaves out columns until the rest fits into the cells, and gives the
// one without a width what is left, which is at least flexMin.
func ColumnsFor(all []Column, cells, flexMin int) []Column {
	chosen := append([]Column(nil), all...)
	used := func() (sum int) {
		for _, c := range chosen {
			sum += c.Cells + 1
			if c.Cells == 0 {
				sum += flexMin
			}
		}
		return sum
	}
	for used() > cells {
		worst := 0
		for i, c := range chosen {
			if c.Priority > chosen[worst].Priority {
				worst = i
			}
		}
		if chosen[worst].Priority == 0 {
			break
		}
		chosen = append(chosen[:worst], chosen[worst+1:]...)
	}
	left := cells
	for _, c := range chosen {
		left -= c.Cells + 1
	}
	for i := range chosen {
		if chosen[i].Cells == 0 {
			chosen[i].Cells = max(left, 1)
		}
	}
	return chosen
}

// Header draws the titles of the columns. The first two cells of the line are
// for marks.
func (p *Painter) Header(columns []Column, cells int) string {
	var line strings.Builder
	line.WriteString("  ")
	for _, c := range columns {
		p.cell(&line, c, c.Title)
	}
	return p.Muted.Render(p.Fit(line.String(), cells))
}

// Row draws the values of a row, by the titles of their columns.
func (p *Painter) Row(columns []Column, cells int, marks string, values map[string]string) string {
	var line strings.Builder
	line.WriteString(marks)
	for _, c := range columns {
		p.cell(&line, c, values[c.Title])
	}
	return p.Fit(line.String(), cells)
}

func (p *Painter) cell(line *strings.Builder, c Column, text string) {
	if c.Right {
		text = p.FitRight(text, c.Cells)
	} else {
		text = p.Fit(text, c.Cells)
	}
	line.WriteString(text)
	line.WriteByte(' ')
}

// Window is the first of count rows to show in height lines so that the row at is
// among them, moving as little as possible from the first one of before.
//
// Example: 100 rows, 10 lines, and rows 20 to 29 shown. The row 25 leaves them as
// they are, 30 shows 21 to 30, and 19 shows 19 to 28.
func Window(first, at, count, height int) int {
	if height <= 0 {
		return 0
	}
	if at < first {
		first = at
	}
	if at >= first+height {
		first = at - height + 1
	}
	return max(min(first, count-height), 0)
}
