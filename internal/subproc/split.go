package subproc

import (
	"errors"
	"strings"
)

// Split cuts a command line into words as a POSIX shell does: at blanks,
// with 'single' and "double" quotes and backslashes. Nothing is expanded, and
// no other character is special.
func Split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quote, escaped := false, rune(0), false
	for _, char := range line {
		switch {
		case escaped:
			if quote == '"' && char != '"' && char != '\\' {
				word.WriteByte('\\') // between double quotes it escapes only these
			}
			word.WriteRune(char)
			escaped = false
		case char == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && char == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(char)
		case char == '\'' || char == '"':
			quote, inWord = char, true
		case char == ' ' || char == '\t' || char == '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(char)
			inWord = true
		}
	}
	switch {
	case quote != 0:
		return nil, errors.New("a quote is not closed")
	case escaped:
		return nil, errors.New("it ends with a backslash")
	case inWord:
		words = append(words, word.String())
	}
	return words, nil
}
