package main

import (
	"fmt"
	"slices"
	"strings"
)

// didYouMean is the question to end an error with, about the name that is most
// like the word; nothing when none is like it.
func didYouMean(word string, names []string) string {
	if name := nearest(word, names); name != "" {
		return fmt.Sprintf("; did you mean %s?", name)
	}
	return ""
}

// nearest is the name that differs least from the word, in at most about a
// third of its characters, or nothing.
func nearest(word string, names []string) string {
	best, least := "", (len([]rune(word))+1)/3+1
	for _, name := range slices.Sorted(slices.Values(names)) {
		if far := distance(strings.ToLower(word), strings.ToLower(name)); far < least {
			best, least = name, far
		}
	}
	return best
}

// distance is how many characters must be put in, left out, replaced or swapped
// with their neighbour to make one text of the other: emial is one swap away
// from email. (Optimal string alignment; Damerau 1964.)
func distance(from, to string) int {
	a, b := []rune(from), []rune(to)
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
