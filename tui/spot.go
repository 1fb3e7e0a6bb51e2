package tui

// spot is where the cursor of a screen is: on a row that it knows by name, and
// at which place. When the row has gone, the cursor goes to the one that has
// taken its place, or to the last one. The zero value is the first row.
type spot struct {
	name  string
	place int
}

// in is the place of the spot among so many rows, which have these names; 0
// when there are none.
func (s spot) in(count int, name func(int) string) int {
	for i := range count {
		if name(i) == s.name {
			return i
		}
	}
	return max(min(s.place, count-1), 0)
}

// moved is the spot so many rows further down, or up; it stays in the list.
func (s spot) moved(by, count int, name func(int) string) spot {
	if count == 0 {
		return s
	}
	place := min(max(s.in(count, name)+by, 0), count-1)
	return spot{name(place), place}
}
