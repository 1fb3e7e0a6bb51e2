package filter

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// errorPattern is what failures are grouped by, in FailuresByError as well.
const errorPattern = "jobq.error_pattern(j.last_error)"

// pattern wants the pattern of the error to be one of the values. The pattern costs
// 50 microseconds for each error, so a LIKE that nearly nothing else passes comes first.
func (c *compiler) pattern(values []Value) string {
	likes := make([]string, len(values))
	for i, value := range values {
		if value.Wild || value.Text == "" { // these say too little of the error, or nothing: it may be null
			return c.texts(errorPattern, values)
		}
		likes[i] = likeOfPattern(value.Text)
	}
	slices.Sort(likes)
	return "j.last_error like any(" + c.param(slices.Compact(likes)) + "::text[]) and (" + c.texts(errorPattern, values) + ")"
}

// kept is what says which error it is, together with the word that follows:
// jobq.error_pattern leaves both, and drops a # right after the word.
var kept = regexp.MustCompile(`(?i)(?:code|status|errno|signal|sqlstate|http|smtp)[ :=]{1,2}`)

// likeOfPattern is a LIKE pattern that each error with this jobq.error_pattern
// matches: anything may stand for a #, and follow.
//
// Example: "user #: exit code 12" becomes "user %: exit code 1%2%%". What stood for a
// dropped # may have been anywhere in the word: "status ab" is also the pattern of the
// error `status a"x"b`.
func likeOfPattern(pattern string) string {
	var like strings.Builder
	begins := kept.FindAllStringIndex(pattern, -1)
	inWord := false
	for at, char := range pattern {
		if len(begins) > 0 && at == begins[0][1] {
			inWord, begins = true, begins[1:]
		}
		switch char {
		case '#':
			like.WriteByte('%')
		case '%', '_', '\\':
			like.WriteByte('\\')
			fallthrough
		default:
			like.WriteRune(char)
		}
		if inWord = inWord && inSomeWord(char); inWord {
			like.WriteByte('%')
		}
	}
	return like.String() + "%"
}

// inSomeWord says whether the character is of a word, in any locale of the database.
func inSomeWord(char rune) bool {
	return char == '_' || char >= '0' && char <= '9' || char >= 'a' && char <= 'z' || char >= 'A' && char <= 'Z' || char > unicode.MaxASCII
}
