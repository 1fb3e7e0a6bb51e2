// Package settings reads the operator's own file: the databases that he works
// on, under names, and the keys that he likes. jobq.yaml, of package config,
// is a worker's and not a person's.
package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/jobq-dev/jobq/internal/yamlerr"
)

// fileBytesMax bounds the file.
const fileBytesMax = 1 << 20

// How an action on many jobs, or one that is hard to take back, is confirmed.
const (
	ConfirmAsk  = "ask"  // with y
	ConfirmType = "type" // by typing the number of jobs
)

// File is the whole file. What is missing is zero, and means the default.
type File struct {
	Contexts map[string]Context `yaml:"contexts"`
	// Keys are the keys of the terminal UI's commands, by the command's id.
	Keys map[string]Keys `yaml:"keys"`
	// WritableByAll says that every user of the machine could have written the
	// file, and so says to which databases its owner connects.
	WritableByAll bool `yaml:"-"`
}

// Context is a database that has a name.
type Context struct {
	DatabaseURL string `yaml:"database_url"`
	ListenURL   string `yaml:"listen_url"` // the same database, past a pooler; default as DatabaseURL
	Schema      string `yaml:"schema"`     // default as without a context
	Color       string `yaml:"color"`      // one of Colors; default none
	Confirm     string `yaml:"confirm"`    // ConfirmAsk or ConfirmType; the default depends on the database
	ReadOnly    bool   `yaml:"read_only"`  // all sessions are
}

// Keys are one key or several.
type Keys []string

// UnmarshalYAML reads them.
func (k *Keys) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*k = Keys{node.Value}
		return nil
	}
	return node.Decode((*[]string)(k))
}

// Colors are those that a context can have: of the terminal's sixteen.
func Colors() []string { return []string{"red", "green", "yellow", "blue", "magenta", "cyan"} }

// Path is where the file is: $XDG_CONFIG_HOME/jobq/config.yaml, and below
// ~/.config where that is not set. It need not exist. Empty when there is no
// home either.
func Path() string {
	folder := os.Getenv("XDG_CONFIG_HOME")
	if folder == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		folder = filepath.Join(home, ".config")
	}
	return filepath.Join(folder, "jobq", "config.yaml")
}

// Load reads the file. One that does not exist says nothing; a key that is not
// known is an error, and so is a value that cannot be meant.
func Load(path string) (*File, error) {
	reader, err := os.Open(path) // #nosec G304 -- the operator's own file
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return new(File), nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }() // only read
	content, err := io.ReadAll(io.LimitReader(reader, fileBytesMax+1))
	if err != nil {
		return nil, err
	}
	file, err := Parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	info, err := reader.Stat() // of what was read, whatever has taken its place
	if err != nil {
		return nil, err
	}
	file.WritableByAll = info.Mode().Perm()&0o002 != 0
	return file, nil
}

// Parse is Load for what has been read.
func Parse(content []byte) (*File, error) {
	if len(content) > fileBytesMax {
		return nil, fmt.Errorf("the file is longer than %d bytes", fileBytesMax)
	}
	var file File
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, yamlerr.NameFields(err, File{}, Context{})
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document")
	}
	for _, name := range file.Names() {
		if err := file.Contexts[name].check(); err != nil {
			return nil, fmt.Errorf("contexts: %s: %w", name, err)
		}
	}
	return &file, nil
}

func (c Context) check() error {
	switch {
	case c.DatabaseURL == "":
		return errors.New("database_url is missing")
	case c.Color != "" && !slices.Contains(Colors(), c.Color):
		return fmt.Errorf("color %q: must be one of %s", c.Color, strings.Join(Colors(), ", "))
	case !slices.Contains([]string{"", ConfirmAsk, ConfirmType}, c.Confirm):
		return fmt.Errorf("confirm %q: must be %s or %s", c.Confirm, ConfirmAsk, ConfirmType)
	}
	return nil
}

// Names are the names of the contexts, in order.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// Context is the one of that name. The error of an unknown one lists the others.
func (f *File) Context(name string) (Context, error) {
	context, known := f.Contexts[name]
	if known {
		return context, nil
	}
	if len(f.Contexts) == 0 {
		return context, fmt.Errorf("no context %q: %s names none", name, Path())
	}
	return context, fmt.Errorf("no context %q; there are %s", name, strings.Join(f.Names(), ", "))
}

// Production says whether a mistake would be dear: the name or the settings
// say so. Such a context looks different, and its actions are typed out.
func Production(name string, c Context) bool {
	return strings.Contains(strings.ToLower(name), "prod") || c.Color == "red" || c.Confirm == ConfirmType
}

// Typed says whether actions are confirmed by typing: in production, and for
// a database on another host of which nothing is said.
func Typed(name string, c Context, host string) bool {
	return Production(name, c) || c.Confirm == "" && !local(host)
}

// local says whether the host is this one: a socket's folder, or a loopback name.
func local(host string) bool {
	return host == "" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") ||
		host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}
