package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jobq-dev/jobq/internal/config"
	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// lockLostVariable says what becomes of programs whose lease is lost, where
// neither the config file nor a flag does.
const lockLostVariable = "JOBQ_LOCK_LOST_BEHAVIOR"

// addHandler gives a worker a handler.
type addHandler func(p *programs.Programs) error

// kindsOf are the kinds of the config file and of the flags, which win.
func kindsOf(f *workerFlags, file *config.File) (map[string]config.Kind, error) {
	kinds := make(map[string]config.Kind)
	for _, flag := range []struct {
		name   string
		values []string
		set    func(kind *config.Kind, value string) error
	}{
		{"run", f.run, func(kind *config.Kind, value string) error { return split(value, &kind.Command) }},
		{"run-stream", f.runStream, func(kind *config.Kind, value string) error { return split(value, &kind.Stream) }},
		{"run-http", f.runHTTP, func(kind *config.Kind, value string) error { kind.HTTP = value; return nil }},
	} {
		for _, text := range flag.values {
			name, value, ok := strings.Cut(text, "=")
			if !utf8.ValidString(name) {
				return nil, usagef("--%s: kind %q: not valid UTF-8", flag.name, name)
			}
			if !ok || name == "" {
				return nil, usagef("--%s %q: must be KIND='COMMAND ARGS', or KIND=URL for --run-http", flag.name, text)
			}
			if err := refuseKindName(name); err != nil {
				return nil, usagef("--%s %q: %w", flag.name, text, err)
			}
			if _, twice := kinds[name]; twice {
				return nil, usagef("--%s %s: the kind is given twice", flag.name, name)
			}
			kind := file.Kinds[name]
			kind.Command, kind.Stream, kind.HTTP = nil, nil, ""
			if err := flag.set(&kind, value); err != nil {
				return nil, usagef("--%s %s: %w", flag.name, name, err)
			}
			kinds[name] = kind
		}
	}
	for name, kind := range file.Kinds {
		if err := refuseKindName(name); err != nil {
			return nil, usagef("%s: kind %q: %w", f.config, name, err)
		}
		if _, given := kinds[name]; !given {
			kinds[name] = kind
		}
	}
	return kinds, nil
}

// refuseKindName refuses what looks like several kinds, and would be one that no job has.
func refuseKindName(name string) error {
	switch {
	case strings.Contains(name, "*"):
		return errors.New("a kind whose name has an asterisk; there is no handler for every kind: name each kind")
	case strings.Contains(name, ","):
		return errors.New("a kind whose name has a comma; for several kinds repeat the handler for each")
	}
	return nil
}

func split(command string, target *config.Words) error {
	words, err := subproc.Split(command)
	if err == nil && len(words) == 0 {
		err = fmt.Errorf("the command is empty")
	}
	*target = words
	return err
}

// handlersOf makes a handler for each kind.
func handlersOf(f *workerFlags, file *config.File) ([]addHandler, error) {
	kinds, err := kindsOf(f, file)
	if err != nil {
		return nil, err
	}
	if _, given := kinds[config.ExecKind]; f.allowExec && !given {
		kinds[config.ExecKind] = config.Kind{}
	}
	for _, flag := range []struct {
		name  string
		kinds []string
		set   func(kind *config.Kind)
	}{
		{"ends-itself", f.endsItself, func(kind *config.Kind) { kind.EndsItself = true }},
		{"steps", f.steps, func(kind *config.Kind) { kind.Steps = true }},
	} {
		for _, name := range flag.kinds {
			kind, given := kinds[name]
			if !given {
				return nil, usagef("--%s %s: no such kind is run here; name one of --run, --run-stream, --run-http or the config file", flag.name, name)
			}
			flag.set(&kind)
			kinds[name] = kind
		}
	}
	var handlers []addHandler
	for name, kind := range kinds {
		isExec := len(kind.Command) == 0 && len(kind.Stream) == 0 && kind.HTTP == ""
		if isExec && !f.allowExec {
			continue // what the file says of exec jobs is for workers that may run them
		}
		if kind.LockLost == "" {
			kind.LockLost = f.lockLost
		}
		handler, err := handlerOf(name, kind)
		if err != nil {
			return nil, usagef("kind %s: %w", name, err)
		}
		handlers = append(handlers, handler)
	}
	if len(handlers) == 0 {
		return nil, usagef("nothing to run: give at least one --run KIND='COMMAND ARGS', --run-stream, --run-http, --allow-exec, or a --config with kinds")
	}
	return handlers, nil
}

func handlerOf(name string, kind config.Kind) (addHandler, error) {
	command, err := commandOf(kind)
	if err != nil {
		return nil, err
	}
	options := &worker.HandleOptions{Slots: kind.Slots, StallTimeout: time.Duration(kind.StallTimeout)}
	if kind.Timeout != nil {
		options.Timeout = cmp.Or(time.Duration(*kind.Timeout), -1) // 0: none, whatever the worker's
	}
	return func(p *programs.Programs) error {
		switch {
		case len(kind.Command) > 0:
			return p.HandleCommand(name, command, options)
		case len(kind.Stream) > 0:
			command.Args = kind.Stream
			return p.HandleStream(name, programs.Stream{Command: command, Processes: kind.Processes}, options)
		case kind.HTTP != "":
			header := make(http.Header, len(kind.Header))
			for field, value := range kind.Header {
				header.Set(field, value)
			}
			return p.HandleHTTP(name, programs.HTTP{URL: kind.HTTP, Header: header, EndsItself: kind.EndsItself, Steps: kind.Steps}, options)
		default:
			return p.HandleExec(command, options)
		}
	}, nil
}

// commandOf is what the kind says of its program.
func commandOf(kind config.Kind) (programs.Command, error) {
	command := programs.Command{
		Args: kind.Command, Dir: kind.Dir, Environ: kind.PassEnv, Env: kind.Env, Grace: time.Duration(kind.Grace),
		Attributes: programs.Attributes{Nice: kind.Nice}, EndsItself: kind.EndsItself, Steps: kind.Steps,
	}
	if command.TellsDrain = kind.OnDrain == config.DrainTell; kind.DrainSignal != "" {
		var err error
		if command.DrainSignal, err = subproc.NoticeSignal(kind.DrainSignal); err != nil {
			return command, err
		}
	}
	switch kind.LockLost {
	case config.LostKill:
	case config.LostTerminate:
		command.LostTerminates = true
	case config.LostFreeze:
		command.LostFreezes = true
	default:
		return command, fmt.Errorf("--lock-lost or %s %q: must be %s, %s or %s", lockLostVariable, kind.LockLost,
			config.LostKill, config.LostTerminate, config.LostFreeze)
	}
	if len(kind.Limits) > 0 {
		command.Attributes.Limits = make(map[string]uint64, len(kind.Limits))
	}
	for name, size := range kind.Limits {
		command.Attributes.Limits[name] = uint64(size)
	}
	var err error
	command.Attributes.UID, command.Attributes.GID, err = identity(kind.User, kind.Group)
	return command, err
}

// identity finds the numbers of a user and a group, each a name or a number.
// A named user brings its group along.
func identity(userName, groupName string) (uid, gid *uint32, err error) {
	if userName != "" {
		if uid, err = number(userName); err != nil {
			account, err := user.Lookup(userName)
			if err != nil {
				return nil, nil, err
			}
			if uid, err = number(account.Uid); err != nil {
				return nil, nil, err
			}
			if gid, err = number(account.Gid); err != nil {
				return nil, nil, err
			}
		}
	}
	if groupName != "" {
		if gid, err = number(groupName); err != nil {
			group, err := user.LookupGroup(groupName)
			if err != nil {
				return nil, nil, err
			}
			if gid, err = number(group.Gid); err != nil {
				return nil, nil, err
			}
		}
	}
	if uid != nil && gid == nil {
		return nil, nil, fmt.Errorf("user %s is a number: it needs a group beside it", userName)
	}
	if uid != nil && os.Getuid() != 0 && int(*uid) != os.Getuid() {
		return nil, nil, fmt.Errorf("user %s: only a worker that runs as root can run programs as somebody else", userName)
	}
	return uid, gid, nil
}

func number(text string) (*uint32, error) {
	value, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, err
	}
	id := uint32(value)
	return &id, nil
}
