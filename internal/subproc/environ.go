package subproc

import (
	"errors"
	"os"
	"slices"
	"strings"
)

// alwaysPassed are the variables that every program gets, if they are set.
var alwaysPassed = []string{"PATH", "HOME", "LANG", "TZ"}

// Environ is a program's whole environment: PATH, HOME, LANG and TZ, those of
// this process's variables that are named, and the additions, which win. What
// is not named is not passed: above all not how to reach the database.
//
// PYTHONUNBUFFERED is 1 unless it is named or added: Python would else keep what
// it prints, and an answer, until its buffer is full or it ends.
func Environ(named []string, additions map[string]string) ([]string, error) {
	values := make(map[string]string, len(additions)+len(named)+len(alwaysPassed)+1)
	values["PYTHONUNBUFFERED"] = "1"
	for _, name := range slices.Concat(alwaysPassed, named) {
		if value, ok := os.LookupEnv(name); ok {
			values[name] = value
		}
	}
	for name, value := range additions {
		values[name] = value
	}
	environ := make([]string, 0, len(values))
	for name, value := range values {
		if strings.ContainsRune(name, 0) || strings.ContainsRune(value, 0) {
			return nil, errors.New("variable " + name + " has a NUL byte, which no environment can hold")
		}
		environ = append(environ, name+"="+value)
	}
	slices.Sort(environ)
	return environ, nil
}
