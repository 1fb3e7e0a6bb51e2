package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/settings"
)

// Everything that the file can say is read as it is meant; no file says nothing.
func TestLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	file, err := settings.Load(path)
	require.NoError(t, err)
	require.Empty(t, file.Names())
	require.NoError(t, os.WriteFile(path, []byte(`
contexts:
  prod: {database_url: "postgres://db-1/app", listen_url: "postgres://db-2/app", schema: work, color: red, confirm: type, read_only: true}
  local: {database_url: host=/tmp}
keys:
  requeue: R
  undo: [u, U]
`), 0o600))
	file, err = settings.Load(path)
	require.NoError(t, err)
	require.Equal(t, []string{"local", "prod"}, file.Names())
	context, err := file.Context("prod")
	require.NoError(t, err)
	require.Equal(t, settings.Context{DatabaseURL: "postgres://db-1/app", ListenURL: "postgres://db-2/app", Schema: "work", Color: "red", Confirm: "type", ReadOnly: true}, context)
	require.Equal(t, map[string]settings.Keys{"requeue": {"R"}, "undo": {"u", "U"}}, file.Keys)
	_, err = file.Context("prdo")
	require.EqualError(t, err, `no context "prdo"; there are local, prod`)
}

// What cannot be meant is refused, with the place of the mistake.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"contexts: {a: {schema: x}}":                             "contexts: a: database_url is missing",
		"contexts: {a: {database_url: x, color: pink}}":          `color "pink": must be one of red`,
		"contexts: {a: {database_url: x, confirm: y}}":           `confirm "y": must be ask or type`,
		"contexts: {a: {database_url: x, readonly: true}}":       "readonly is not known: there are database_url",
		"contexts: {a: {database_url: x}, a: {database_url: y}}": "already defined",
		"keys: {undo: {}}":                                       "cannot unmarshal",
		"a: b\n---\nc: d":                                        "a is not known: there are contexts",
		"{}\n---\n{}":                                            "more than one document",
		strings.Repeat("#", 1<<20+1):                             "longer than",
	} {
		_, err := settings.Parse([]byte(content))
		require.ErrorContains(t, err, want, content[:min(len(content), 80)])
	}
}

// What is production, and what is confirmed by typing.
func TestProduction(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		context           settings.Context
		host              string
		production, typed bool
	}{
		"staging":  {settings.Context{}, "/tmp", false, false},
		"eu":       {settings.Context{}, "db-1.example.com", false, true},
		"eu2":      {settings.Context{Confirm: "ask"}, "db-1.example.com", false, false},
		"EU-PROD":  {settings.Context{Confirm: "ask"}, "localhost", true, true},
		"billing":  {settings.Context{Color: "red"}, "127.0.0.1", true, true},
		"billing2": {settings.Context{Confirm: "type"}, "::1", true, true},
		"":         {settings.Context{}, "10.0.0.7", false, true},
	} {
		require.Equal(t, test.production, settings.Production(name, test.context), name)
		require.Equal(t, test.typed, settings.Typed(name, test.context, test.host), name)
	}
}

// Whatever is in the file, reading it does not fail in any other way than with
// an error, and what is read holds.
func FuzzParse(f *testing.F) {
	f.Add([]byte("contexts: {prod: {database_url: x, color: red}}\nkeys: {undo: [u]}"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := settings.Parse(content)
		if err != nil {
			return
		}
		for _, name := range file.Names() {
			context, err := file.Context(name)
			require.NoError(t, err)
			require.NotEmpty(t, context.DatabaseURL)
		}
	})
}
