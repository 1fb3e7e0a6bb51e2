package widget

import "strings"

// Column is one of a table. The one with the largest Priority is dropped first
// where there is no room; one column without a width takes what is left.
type Column struct {
	Title    string
	Cells    int // 0: what is left
	Right    bool
	Priority int // 0 is never dropped
	// Most is how wide the column becomes where there is more room; 0 for as wide as
	// it is. Of the column that takes what is left it is how wide that is to be before
	// others grow.
	Most int
}

// UpTo is the column with its Most.
func (c Column) UpTo(cells int) Column {
	c.Most = cells
	return c
}

// Cells is how wide the column with the title is; 0 when it was dropped.
func Cells(columns []Column, title string) int {
	for _, c := range columns {
		if c.Title == title {
			return c.Cells
		}
	}
	return 0
}

// Left is a column whose text is at its left end.
func Left(title string, cells, priority int) Column {
	return Column{Title: title, Cells: cells, Priority: priority}
}

// Right is a column whose text is at its right end, as numbers are.
func Right(title string, cells, priority int) Column {
	return Column{Title: title, Cells: cells, Right: true, Priority: priority}
}

// ColumnsFor leaves out columns until the rest fits into the cells, lets those grow
// that can, and gives the one without a width what is left, which is at least flexMin.
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
	left, enough := cells, flexMin
	for _, c := range chosen {
		left -= c.Cells + 1
		if c.Cells == 0 {
			enough = max(enough, c.Most)
		}
	}
	flex := -1
	for i, c := range chosen {
		if c.Cells == 0 {
			flex = i
			continue
		}
		if more := min(c.Most-c.Cells, left-enough); more > 0 {
			chosen[i].Cells += more
			left -= more
		}
	}
	if flex >= 0 {
		chosen[flex].Cells = max(left, 1)
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
