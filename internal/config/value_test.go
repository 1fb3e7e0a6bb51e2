package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/config"
)

// Goal: args and metadata of a schedule are stored as they are written, or refused with the line.
func TestValuesOfSchedules(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"{n: 12345678901234567890123}":  `{"n":12345678901234567890123}`,
		"{n: 0.12345678901234567890}":   `{"n":0.12345678901234567890}`,
		"{n: -1e400}":                   `{"n":-1e400}`,
		"{d: 2026-01-31}":               `{"d":"2026-01-31"}`,
		"{d: 2026-01-31T10:00:00Z}":     `{"d":"2026-01-31T10:00:00Z"}`,
		"{2026-01-31: x}":               `{"2026-01-31":"x"}`,
		`{n: "01234", t: yes, b: true}`: `{"n":"01234","t":"yes","b":true}`,
		"[~, null, [], {}, '', 1]":      `[null,null,[],{},"",1]`,
		"{a: &x {b: 1}, c: *x}":         `{"a":{"b":1},"c":{"b":1}}`,
		"~":                             "",
		"{n: 01234}":                    `line 4: "01234" is not a number as JSON writes it`,
		"{n: 0x1F}":                     `"0x1F" is not a number`,
		"{n: 0o17}":                     `"0o17" is not a number`,
		"{n: 1_000}":                    `"1_000" is not a number`,
		"{n: .5}":                       `".5" is not a number`,
		"{n: +5}":                       `"+5" is not a number`,
		"{n: .nan}":                     `".nan" is not a number`,
		"{n: !!binary aGk=}":            `JSON has no values of type "!!binary"`,
		"{n: !odd x}":                   `JSON has no values of type "!odd"`,
		"{1: x}":                        "JSON has only texts as keys",
		"{[a]: x}":                      "JSON has only texts as keys",
		"{a: 1, a: 2}":                  `the key "a" is there twice`,
		"{a: &x {b: 1}, c: {<<: *x}}":   "<< is not supported here",
		strings.Repeat("[", 80):         "yaml",
		strings.Repeat("[", 80) + strings.Repeat("]", 80): "nested more than 64 deep",
		"&a [*a]": "nested more than 64 deep",
	} {
		for _, member := range []string{"args", "metadata"} {
			file, err := config.Parse([]byte(fmt.Sprintf("app: a\nschedules:\n  s: {every: 1h, kind: k,\n    %s: %s}\n", member, value)))
			if err != nil {
				require.ErrorContains(t, err, want, value)
				require.NotEmpty(t, want, value)
				continue
			}
			got := file.Schedules["s"].Args
			if member == "metadata" {
				got = file.Schedules["s"].Metadata
			}
			require.Equal(t, want, string(got), value)
		}
	}
}

// Goal: a hostile file ends in an error, soon, and with little memory.
// Method: bombs of aliases, in values and elsewhere; nesting; devices; folders; odd types for each key.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	bomb := "x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("x%d: &x%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*x%d, ", i-1), 10), ", "))
	}
	nested := strings.ReplaceAll(strings.ReplaceAll(bomb, "\n", "\n        "), "\n        \n", "\n")
	for name, content := range map[string]string{
		"bomb":            bomb,
		"bomb in args":    "app: a\nschedules:\n  s:\n    every: 1h\n    kind: k\n    args:\n        " + nested,
		"bomb in env":     "kinds:\n  k:\n    command: x\n    env:\n        " + nested,
		"bomb in a queue": "queues:\n  k:\n        " + nested,
		"deep":            strings.Repeat("[", 500_000),
		"deep keys":       strings.Repeat("{a: ", 200_000),
		"deep blocks":     "a:\n" + strings.Repeat("- ", 400_000),
		"questions":       strings.Repeat("? ", 500_000),
		"anchors":         "a: " + strings.Repeat("&a ", 300_000) + "1",
		"huge number":     "drain_timeout: " + strings.Repeat("9", 900_000) + "h",
		"huge text":       "app: " + strings.Repeat("x", 2<<20),
		"nul":             "app: \x00",
		"tags":            "queues: !!map [1]",
		"no UTF-8":        "app: \xff\xfe",
	} {
		_, err := config.Parse([]byte(content))
		require.Error(t, err, name)
		require.Less(t, len(err.Error()), 3000, name)
	}
	for _, key := range []string{"lease", "poll", "drain_timeout", "queues", "kinds", "codec", "app", "schedules", "schedules_version"} {
		for _, value := range []string{"[]", "{}", "{a: b}", "[[1]]", "!!binary x", "2026-01-31", "1e999", "-1", "~", "true", "'\x1b[31m'", "&a {b: *a}"} {
			_, _ = config.Parse([]byte(key + ": " + value)) // an error or none, and no panic
		}
	}
	for _, path := range []string{"/dev/zero", t.TempDir(), "/proc/self/mem"} {
		if _, err := os.Stat(path); err == nil {
			_, err := config.Load(path)
			require.Error(t, err, path)
		}
	}
	loop := filepath.Join(t.TempDir(), "loop.yaml")
	require.NoError(t, os.Symlink(loop, loop))
	_, err := config.Load(loop)
	require.Error(t, err)
}
