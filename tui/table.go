package tui

import "strings"

// column is one of a table. The widest priority is dropped first where there
// is no room; one column without a width takes what is left.
type column struct {
	title    string
	cells    int // 0: what is left
	right    bool
	priority int // 0 is never dropped
}

// columnsFor leaves out columns until the rest fits, and gives the flexible
// one its width.
func columnsFor(all []column, cells, flexMin int) []column {
	chosen := append([]column(nil), all...)
	used := func() (sum int) {
		for _, c := range chosen {
			sum += c.cells + 1
			if c.cells == 0 {
				sum += flexMin
			}
		}
		return sum
	}
	for used() > cells {
		worst := 0
		for i, c := range chosen {
			if c.priority > chosen[worst].priority {
				worst = i
			}
		}
		if chosen[worst].priority == 0 {
			break
		}
		chosen = append(chosen[:worst], chosen[worst+1:]...)
	}
	left := cells
	for _, c := range chosen {
		left -= c.cells + 1
	}
	for i := range chosen {
		if chosen[i].cells == 0 {
			chosen[i].cells = max(left, 1)
		}
	}
	return chosen
}

// tableHeader and tableRow draw cells by their column's title. The first two
// cells of the line are for marks.
func (m *Model) tableHeader(columns []column, cells int) string {
	line := "  "
	for _, c := range columns {
		if c.right {
			line += m.fitRight(c.title, c.cells) + " "
		} else {
			line += m.fit(c.title, c.cells) + " "
		}
	}
	return dim(m.fit(line, cells))
}

func (m *Model) tableRow(columns []column, cells int, marks string, values map[string]string) string {
	var line strings.Builder
	line.WriteString(marks)
	for _, c := range columns {
		if c.right {
			line.WriteString(m.fitRight(values[c.title], c.cells))
		} else {
			line.WriteString(m.fit(values[c.title], c.cells))
		}
		line.WriteByte(' ')
	}
	return m.fit(line.String(), cells)
}

// window is the part of count rows to show so that the row at is in it,
// moving as little as possible from the offset of before.
func window(offset, at, count, height int) int {
	if height <= 0 {
		return 0
	}
	if at < offset {
		offset = at
	}
	if at >= offset+height {
		offset = at - height + 1
	}
	return max(min(offset, count-height), 0)
}
