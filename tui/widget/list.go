package widget

// List is where an operator is in a list of rows that have names: the row of the
// cursor, and the first row on the screen. It knows its row by name, so that rows
// which come and go do not change what a key acts on. When the row has gone, the
// cursor goes to the one that has taken its place, or to the last one. The zero
// value is at the first row.
type List struct {
	name          string
	place         int
	first, height int
}

// Rows are what a List is about.
type Rows interface {
	Len() int
	Name(i int) string
}

// SetHeight sets how many rows can be seen.
func (l *List) SetHeight(height int, rows Rows) {
	l.height = max(height, 1)
	l.scroll(rows)
}

// Height is how many rows can be seen: a page.
func (l *List) Height() int { return l.height }

// At is the place of the cursor; 0 when there are no rows.
func (l *List) At(rows Rows) int {
	for i := range rows.Len() {
		if rows.Name(i) == l.name {
			return i
		}
	}
	return max(min(l.place, rows.Len()-1), 0)
}

// Move moves the cursor so many rows down, or up; it stays in the list. With 0
// the cursor stays on its row, and is remembered to be on it.
func (l *List) Move(by int, rows Rows) {
	if rows.Len() == 0 {
		return
	}
	l.place = min(max(l.At(rows)+by, 0), rows.Len()-1)
	l.name = rows.Name(l.place)
	l.scroll(rows)
}

// scroll keeps the cursor on the screen.
func (l *List) scroll(rows Rows) { l.first = Window(l.first, l.At(rows), rows.Len(), l.height) }

// Shown are the rows on the screen: the first one, and the one after the last.
func (l *List) Shown(rows Rows) (first, end int) {
	first = Window(l.first, l.At(rows), rows.Len(), l.height)
	return first, min(first+l.height, rows.Len())
}
