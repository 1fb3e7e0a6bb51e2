package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/internal/when"
)

// arguments makes a command line what pflag understands, which takes every
// word with one - in front for short flags: `enqueue hello -queue images` for -q
// with the value ueue. A long flag with one - is refused, and a term of a filter
// that begins with - goes behind the flags. A duration after a flag that can do
// without, which pflag takes for an argument, is made its value.
//
//	list -queue:x --limit 5    becomes    list --limit 5 -- -queue:x
//	stats --watch 5s           becomes    stats --watch=5s
func arguments(root *cobra.Command, args []string) ([]string, error) {
	command, _, err := root.Find(args)
	if err != nil {
		return args, nil // an unknown command, which cobra refuses
	}
	flagsEnd := slices.Index(args, "--")
	if flagsEnd < 0 {
		flagsEnd = len(args)
	}
	var kept, terms []string
	for i, arg := range args[:flagsEnd] {
		isValue := i > 0 && takesValue(command, args[i-1])
		if i > 0 && offersDuration(command, args[i-1], arg) {
			kept[len(kept)-1] += "=" + arg
			continue
		}
		if isValue || len(arg) < 3 || arg[0] != '-' || arg[1] == '-' {
			kept = append(kept, arg)
			continue
		}
		isTerm, err := oneDash(command, arg)
		switch {
		case err != nil:
			return nil, err
		case isTerm:
			terms = append(terms, arg)
		default:
			kept = append(kept, arg)
		}
	}
	if len(terms) == 0 {
		return append(kept, args[flagsEnd:]...), nil
	}
	kept = append(append(kept, "--"), terms...)
	if flagsEnd < len(args) {
		kept = append(kept, args[flagsEnd+1:]...)
	}
	return kept, nil
}

// oneDash looks at a word with one - in front: it can be a term of a filter,
// where the command takes those, and must not be the name of a long flag.
func oneDash(command *cobra.Command, arg string) (isTerm bool, err error) {
	name, rest := arg[1:], ""
	if end := strings.IndexAny(name, ".:=<>"); end >= 0 {
		name, rest = name[:end], name[end:]
	}
	isField := rest != "" && slices.ContainsFunc(filter.Fields(), func(f filter.Field) bool { return f.Name == name })
	switch {
	case len(name) > 1 && (rest == "" || rest[0] == '=') && command.Flag(name) != nil:
		return false, usagef("%s: write -%s, with two dashes", arg, arg)
	case !isField:
		return false, nil
	case command.Flag("filter") != nil:
		return false, usagef("%s: a filter is one value, in quotes: --filter '%s'", arg, arg)
	}
	return command.Name() == "list", nil
}

// takesValue says whether the word is a flag whose value is the next word.
func takesValue(command *cobra.Command, word string) bool {
	var flag *pflag.Flag
	switch {
	case strings.HasPrefix(word, "--"):
		flag = command.Flag(word[2:])
	case len(word) == 2 && word[0] == '-':
		flag = command.Flags().ShorthandLookup(word[1:])
	}
	return flag != nil && flag.NoOptDefVal == ""
}

// offersDuration says whether a word is a duration, and the one before it a flag
// that takes one or none.
func offersDuration(command *cobra.Command, before, word string) bool {
	name, isLong := strings.CutPrefix(before, "--")
	flag := command.Flag(name)
	if !isLong || flag == nil || flag.Value.Type() != "duration" || flag.NoOptDefVal == "" {
		return false
	}
	_, err := when.ParseDuration(word)
	return err == nil
}

// flagError is what pflag has against a command line, with what to write
// instead.
func flagError(command *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &invalid):
		return usagef("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), valueProblem(invalid))
	case !errors.As(err, &unknown):
		return usageError{err}
	}
	hint := ""
	if unknown.GetSpecifiedShortnames() == "" {
		var names []string
		command.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, "--"+flag.Name) })
		hint = didYouMean("--"+unknown.GetSpecifiedName(), names)
	} else if command.Name() == "list" {
		hint = fmt.Sprintf("; a word that must not be found goes behind --: jobq list -- -%s", unknown.GetSpecifiedShortnames())
	}
	return usagef("%w: see %s --help%s", err, command.CommandPath(), hint)
}

// valueProblem says in words what strconv has against a number.
func valueProblem(invalid *pflag.InvalidValueError) error {
	var number *strconv.NumError
	if !errors.As(invalid, &number) {
		return errors.Unwrap(invalid)
	}
	switch invalid.GetFlag().Value.Type() {
	case "int16":
		return fmt.Errorf("must be a whole number from %d to %d", math.MinInt16, math.MaxInt16)
	case "bool":
		return errors.New("must be true or false")
	}
	return errors.New("must be a whole number")
}
