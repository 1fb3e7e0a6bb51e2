// Package yamlerr says what is wrong with a YAML file in the words of the file.
package yamlerr

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// unknownField is what the library says of a field that a struct lacks.
var unknownField = regexp.MustCompile(`field (\S+) not found in type \w+\.(\w+)`)

// NameFields names the fields that there are, where the library names the Go type that lacks one. The values are of the structs
// of the file.
func NameFields(err error, structs ...any) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return err
	}
	for i, text := range wrong.Errors {
		match := unknownField.FindStringSubmatchIndex(text)
		if match == nil {
			continue
		}
		for _, value := range structs {
			if of := reflect.TypeOf(value); of.Name() == text[match[4]:match[5]] {
				wrong.Errors[i] = fmt.Sprintf("%s%s is not known: there are %s", text[:match[0]], text[match[2]:match[3]], strings.Join(names(of), ", "))
			}
		}
	}
	return err
}

// names are those that the fields of a struct have in the file.
func names(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		if name, _, _ := strings.Cut(of.Field(i).Tag.Get("yaml"), ","); name != "-" && name != "" {
			names = append(names, name)
		}
	}
	return names
}
