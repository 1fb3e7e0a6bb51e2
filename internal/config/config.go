// Package config reads jobq.yaml: how a worker runs which kind of job. It
// knows what the file can say, and not what is done with it.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/internal/yamlerr"
)

// fileBytesMax bounds the file.
const fileBytesMax = 1 << 20

// What becomes of a program whose lease is lost.
const (
	LostKill      = "sigkill" // SIGKILL at once
	LostTerminate = "sigterm" // SIGTERM, and SIGKILL before the lease ends
	LostFreeze    = "freeze"  // SIGSTOP, until it is known whether somebody has taken the job
)

// DrainTell is the value of on_drain: programs hear at once that their worker drains.
const DrainTell = "tell"

// File is the whole file. What is missing is zero, and means the default.
type File struct {
	// Queues are the queues to claim from.
	Queues       map[string]Queue `yaml:"queues"`
	Lease        Duration         `yaml:"lease"`
	Poll         Duration         `yaml:"poll"`
	DrainTimeout Duration         `yaml:"drain_timeout"`
	// Timeout ends runs that take longer, of kinds that have none.
	Timeout Duration `yaml:"timeout"`
	// FailUnreadableAfter is how long a job waits that no worker can decrypt, before it fails for good.
	FailUnreadableAfter Duration `yaml:"fail_unreadable_after"`
	// RestAfterFailures is after how many failures in a row a kind may rest on this worker; 0: never.
	RestAfterFailures *int            `yaml:"rest_after_failures"`
	Kinds             map[string]Kind `yaml:"kinds"`
	// Codec is what args, checkpoints and results are encrypted with.
	Codec Codec `yaml:"codec"`
	// App is whose Schedules they are. A file without the key schedules declares
	// nothing; with no schedules in it, it declares that there are to be none.
	App              string              `yaml:"app"`
	Schedules        map[string]Schedule `yaml:"schedules"`
	SchedulesVersion int                 `yaml:"schedules_version"`
	// ScheduleLines are the lines at which Schedules begin, by their names.
	ScheduleLines map[string]int `yaml:"-"`
	// Path is where the file was read from; empty when it was not.
	Path string `yaml:"-"`
	// WritableByAll says that every user of the machine could have written the
	// file, and so says which programs are run.
	WritableByAll bool `yaml:"-"`
}

// Codec names the keys of a worker.
type Codec struct {
	KeysFile string `yaml:"keys_file"`
}

// Kind is how jobs of a kind are run: one of Command, Stream and HTTP says by what.
type Kind struct {
	Command   Words  `yaml:"command"` // a program for each job
	Stream    Words  `yaml:"stream"`  // a program that is kept
	Processes int    `yaml:"processes"`
	HTTP      string `yaml:"http"` // a URL
	// Header is sent with each request.
	Header map[string]string `yaml:"header"`
	// EndsItself says that the handler ends its jobs in transactions of its own.
	EndsItself bool `yaml:"ends_itself"`
	// Steps says that the handler does durable steps, and has the token for them.
	Steps bool `yaml:"steps"`

	// Settings are stored with the kind, for all producers: those of "jobq kinds set".
	Settings KindSettings `yaml:"settings"`

	Slots int `yaml:"slots"`
	// Timeout ends runs that take longer; nil: that of the file; 0: none.
	Timeout      *Duration `yaml:"timeout"`
	StallTimeout Duration  `yaml:"stall_timeout"`

	Dir      string            `yaml:"cwd"`
	PassEnv  []string          `yaml:"pass_env"` // variables of the worker's
	Env      map[string]string `yaml:"env"`
	Grace    Duration          `yaml:"grace"`
	LockLost string            `yaml:"lock_lost"` // LostKill, LostTerminate or LostFreeze
	// OnDrain is DrainTell, or "" for a program that runs until the drain's time is over. DrainSignal is how it is told.
	OnDrain     string          `yaml:"on_drain"`
	DrainSignal string          `yaml:"on_drain_signal"` // such as SIGUSR1; default SIGTERM
	User        string          `yaml:"user"`            // a name or a number
	Group       string          `yaml:"group"`           // likewise
	Nice        int             `yaml:"nice"`
	Limits      map[string]Size `yaml:"limits"`
}

// Load reads a file. A key that is not known is an error, and so is a value
// that cannot be meant.
func Load(path string) (*File, error) {
	reader, err := os.Open(path) // #nosec G304 -- the operator's own file
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
	file.Path = path
	file.WritableByAll = info.Mode().Perm()&0o002 != 0
	return file, nil
}

// errorBytesMax bounds the text of an error, which repeats what the file says.
const errorBytesMax = 2000

// Parse is Load for what has been read.
func Parse(content []byte) (*File, error) {
	file, err := parse(content)
	if err != nil {
		if text := err.Error(); len(text) > errorBytesMax {
			return nil, errors.New(strings.ToValidUTF8(text[:errorBytesMax], "") + "…")
		}
		return nil, err
	}
	return file, nil
}

func parse(content []byte) (*File, error) {
	if len(content) > fileBytesMax {
		return nil, fmt.Errorf("the file is longer than %d bytes", fileBytesMax)
	}
	var file File
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, yamlerr.NameFields(err, File{}, Kind{}, Codec{}, Schedule{})
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document")
	}
	for name, kind := range file.Kinds {
		if err := kind.check(name); err != nil {
			return nil, fmt.Errorf("kinds: %s: %w", name, err)
		}
	}
	if key, given := keyLines(content)["codec"]; given && file.Codec.KeysFile == "" { // values would be stored plain
		return nil, fmt.Errorf("line %d: codec: keys_file is missing", key.line)
	}
	if err := file.checkSchedules(content); err != nil {
		return nil, err
	}
	return &file, nil
}

// ExecKind is the kind whose jobs say themselves what to run.
const ExecKind = "exec"

func (k *Kind) check(name string) error {
	ways := 0
	for _, given := range []bool{len(k.Command) > 0, len(k.Stream) > 0, k.HTTP != ""} {
		if given {
			ways++
		}
	}
	switch {
	case name == "":
		return errors.New("a kind has no name")
	case ways == 0 && name != ExecKind:
		return errors.New("one of command, stream and http must say what runs it")
	case ways > 1:
		return errors.New("only one of command, stream and http can run it")
	case k.Slots < 0 || k.Slots > 10_000:
		return fmt.Errorf("slots must be 1 to 10000, not %d", k.Slots)
	case k.Processes < 0 || (k.Processes > 0 && len(k.Stream) == 0):
		return errors.New("processes is for stream, and at least 1")
	case len(k.Header) > 0 && k.HTTP == "":
		return errors.New("header is for http")
	case k.HTTP != "" && k.hasProgram():
		return errors.New("an http handler has no program: cwd, env, user and their like are not for it")
	case k.LockLost != "" && !slices.Contains([]string{LostKill, LostTerminate, LostFreeze}, k.LockLost):
		return fmt.Errorf("lock_lost %q: must be %s, %s or %s", k.LockLost, LostKill, LostTerminate, LostFreeze)
	case k.OnDrain != "" && k.OnDrain != DrainTell:
		return fmt.Errorf("on_drain %q: must be %s", k.OnDrain, DrainTell)
	case k.OnDrain != "" && (len(k.Stream) > 0 || k.HTTP != ""):
		return errors.New("on_drain is for command: kept programs and servers get no signal between jobs")
	case k.DrainSignal != "" && k.OnDrain == "":
		return errors.New("on_drain_signal is for on_drain: tell")
	case k.Nice < -20 || k.Nice > 19:
		return fmt.Errorf("nice must be -20 to 19, not %d", k.Nice)
	}
	if k.DrainSignal != "" {
		if _, err := subproc.NoticeSignal(k.DrainSignal); err != nil {
			return fmt.Errorf("on_drain_signal: %w", err)
		}
	}
	for limit := range k.Limits {
		if !slices.Contains(subproc.LimitNames(), limit) {
			return fmt.Errorf("limits: %s: must be one of %q", limit, subproc.LimitNames())
		}
	}
	if _, err := url.Parse(k.HTTP); err != nil {
		return fmt.Errorf("http: %w", err)
	}
	return nil
}

// hasProgram says whether anything is said that only a program can have.
func (k *Kind) hasProgram() bool {
	return k.Dir != "" || len(k.PassEnv) > 0 || len(k.Env) > 0 || k.User != "" || k.Group != "" || k.Nice != 0 || len(k.Limits) > 0
}
