package config_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/config"
	"github.com/jobq-dev/jobq/operator"
)

// Everything that the file can say is read as it is meant.
func TestParse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobq.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`
queues:
  default: 10
  images: {slots: 4, limit: 3, rate: 100/s, burst: 20}
  mail: {rate: 5/m}
  free: {slots: 1, limit: none, rate: none}
  apart: {key_rate: 5/s, key_rate_burst: 2}
  together: {key_rate: none}
  tenants: {key_separator: /, key_weights: {acme: 3}}
  hashed: {key_separator: "#"}
  each: {key_separator: none}
drain_timeout: 1m
timeout: 15m
fail_unreadable_after: 3d
rest_after_failures: 0
codec: {keys_file: /etc/jobq/keys}
kinds:
  resize:
    command: ["./resize", "--id", "${args.id}"]
    slots: 2
    timeout: 10m
    stall_timeout: 1m30s
    cwd: /srv
    pass_env: [AWS_REGION]
    env: {MODE: fast, N: 3}
    grace: 10s
    lock_lost: sigterm
    user: nobody
    group: 65534
    nice: 10
    limits: {address_space: 512MiB, open_files: 100}
  score: {stream: "python3 -u 'my score.py'", processes: 4}
  mail:
    http: http://127.0.0.1:8080/jobs
    header: {Authorization: Bearer x}
    ends_itself: true
  exec: {timeout: 0s}
`), 0o600))
	file, err := config.Load(path)
	require.NoError(t, err)
	require.Equal(t, map[string]config.Queue{
		"default":  {Slots: new(10), Line: 3},
		"images":   {Slots: new(4), Change: operator.QueueChange{MaxRunning: new(3), Rate: &jobq.Rate{Jobs: 100, Period: time.Second, Burst: 20}}, Line: 4},
		"mail":     {Change: operator.QueueChange{Rate: &jobq.Rate{Jobs: 5, Period: time.Minute}}, Line: 5},
		"free":     {Slots: new(1), Change: operator.QueueChange{MaxRunning: new(0), Rate: new(jobq.Rate)}, Line: 6},
		"apart":    {Change: operator.QueueChange{KeyRate: &jobq.Rate{Jobs: 5, Period: time.Second, Burst: 2}}, Line: 7},
		"together": {Change: operator.QueueChange{KeyRate: new(jobq.Rate)}, Line: 8},
		"tenants":  {Change: operator.QueueChange{KeySeparator: new("/")}, KeyWeights: map[string]int{"acme": 3}, Line: 9},
		"hashed":   {Change: operator.QueueChange{KeySeparator: new("#")}, Line: 10},
		"each":     {Change: operator.QueueChange{KeySeparator: new("")}, Line: 11},
	}, file.Queues)
	require.Equal(t, config.Duration(time.Minute), file.DrainTimeout)
	require.Equal(t, config.Duration(15*time.Minute), file.Timeout)
	require.Equal(t, new(config.Duration(0)), file.Kinds["exec"].Timeout)
	require.Nil(t, file.Kinds["score"].Timeout)
	require.Equal(t, config.Duration(72*time.Hour), file.FailUnreadableAfter)
	require.Zero(t, *file.RestAfterFailures)
	require.Equal(t, "/etc/jobq/keys", file.Codec.KeysFile)
	require.Equal(t, config.Kind{
		Command: config.Words{"./resize", "--id", "${args.id}"}, Slots: 2, Timeout: new(config.Duration(10 * time.Minute)),
		StallTimeout: config.Duration(90 * time.Second), Dir: "/srv", PassEnv: []string{"AWS_REGION"},
		Env: map[string]string{"MODE": "fast", "N": "3"}, Grace: config.Duration(10 * time.Second), LockLost: config.LostTerminate,
		User: "nobody", Group: "65534", Nice: 10, Limits: map[string]config.Size{"address_space": 512 << 20, "open_files": 100},
	}, file.Kinds["resize"])
	require.Equal(t, config.Words{"python3", "-u", "my score.py"}, file.Kinds["score"].Stream)
	require.True(t, file.Kinds["mail"].EndsItself)
	require.Equal(t, "Bearer x", file.Kinds["mail"].Header["Authorization"])
	empty, err := config.Parse(nil)
	require.NoError(t, err)
	require.Empty(t, empty.Kinds)
}

// What cannot be meant is refused, and the error says where.
func TestRefused(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"kind: {}":                "line 1: kind is not known: there are queues, lease, poll",
		"kinds: {a: {comand: x}}": "line 1: comand is not known: there are command, stream, processes",
		"kinds: {a: {}}":          "kinds: a: one of command",
		"kinds: {a: {command: x, http: http://x}}":                         "only one of",
		"kinds: {a: {command: x, timeout: 10}}":                            "duration",
		"kinds: {a: {command: x, timeout: -1s}}":                           "duration",
		"kinds: {a: {command: \"x 'y\"}}":                                  "quote",
		"kinds: {a: {command: {x: y}}}":                                    "must be a command",
		"kinds: {a: {command: x, processes: 2}}":                           "processes",
		"kinds: {a: {http: http://x, cwd: /}}":                             "no program",
		"kinds: {a: {command: x, lock_lost: no}}":                          "lock_lost \"no\": must be sigkill, sigterm or freeze",
		"kinds: {a: {command: x, on_drain: no}}":                           `on_drain "no": must be tell`,
		"kinds: {a: {command: x, on_drain_signal: SIGUSR1}}":               "on_drain_signal is for on_drain: tell",
		"kinds: {a: {command: x, on_drain: tell, on_drain_signal: USR1}}":  `on_drain_signal: signal "USR1": must be one of SIGHUP, SIGINT`,
		"kinds: {a: {stream: x, on_drain: tell}}":                          "on_drain is for command",
		"kinds: {a: {command: x, nice: 30}}":                               "nice",
		"kinds: {a: {command: x, slots: -1}}":                              "slots",
		"kinds: {a: {command: x, limits: {x: 1}}}":                         "limits: x",
		"kinds: {a: {command: x, limits: {core: x}}}":                      "size such as",
		"kinds: {a: {command: x, header: {a: b}}}":                         "header",
		"kinds: {a: {command: x}, a: {command: y}}":                        "already defined",
		"schedules: {s: {every: 1h, kind: k}}":                             "app is missing",
		"app: a\nschedules:\n  r: {every: 1h, kind: k}\n  s: {every: 1h}":  "line 4: schedules: s: kind is missing",
		"app: a\nschedules:\n  s:\n    kind: k":                            "line 3: schedules: s: either cron or every",
		"app: a\nschedules:\n  s: {kind: k, cron: '61 * * * *'}":           "line 3: schedules: s: cron \"61 * * * *\": minute",
		"app: a\nschedules:\n  s: {kind: k, cron: '@daily', time_zone: X}": "line 3: schedules: s: ",
		"app: a\nschedules:\n  s: {kind: k, every: 1h, time_zone: UTC}":    "line 3: schedules: s: time_zone is for cron",
		"app: a\nschedules:\n  s: {kind: k, every: 1h, args: {1: .inf}}":   "line 3: JSON",
		"app: a\nschedules:\n  s: {kind: k, evry: 1h}":                     "line 3: evry is not known: there are cron, time_zone, every, kind",
		"app: a\nschedules:\n  s: {kind: k, every: 10}":                    "line 3: duration",
		"queues:\n  q: 0":                              "line 2: slots: must be a number of at least 1, not \"0\"",
		"queues:\n  q: [1]":                            "line 2: cannot unmarshal",
		"queues:\n  q:\n    slots: x":                  "line 3: slots: must be a number",
		"queues:\n  q:\n    limit: 0":                  "line 3: limit: must be a number",
		"queues:\n  q:\n    rate: 5":                   "line 3: rate: must be like 100/s",
		"queues:\n  q:\n    slots: 2\n    burst: 5":    "line 4: burst: needs a rate",
		"queues:\n  q: {rate: none, burst: 5}":         "line 2: burst: needs a rate",
		"queues:\n  q: {rate: 5/s, key_rate_burst: 5}": "line 2: key_rate_burst: needs a key_rate",
		"queues:\n  q:\n    key_rate: 5":               "line 3: key_rate: must be like 100/s",
		"queues:\n  q: {claim_ahead: perhaps}":         "line 2: claim_ahead: must be true or false, not \"perhaps\"",
		"queues:\n  q: {slots: 1, lmit: 5}":            "line 2: lmit: not known: a queue has slots, claim_ahead, key_weights, limit, rate, burst, key_limit, ",
		"queues:\n  q: {age_after: 300}":               "line 2: age_after: must be a duration such as 90s, 10m or 2d, or none, not \"300\"",
		"queues:\n  q:\n    age_after: 0s":             "line 3: age_after: must be a duration",
		"queues:\n  q: {slots: 1, slots: 5}":           "already defined",
		"codec: {}":                                    "line 1: codec: keys_file is missing",
		"kinds: {}\ncodec: {keys_file: \"\"}":          "line 2: codec: keys_file is missing",
		"codec:":                                       "line 1: codec: keys_file is missing",
		"queues:\n  q: {key_weights: 3}":               "line 2: key_weights: must be partition keys, each with its weight, such as customer-17: 3",
		"queues:\n  q: {key_weights: {a: x}}":          "line 2: key_weights: must be partition keys",
		"queues:\n  q: {key_weights: {a b: 101}}":      "line 2: key_weights: \"a b\" must be 1 to 100, not 101",
		"queues:\n  q: {key_weights: {\"\": 2}}":       "line 2: key_weights: a partition key must be 1 to 255 characters, not 0",
		"queues:\n  q: {key_separator: \"\"}":          "line 2: key_separator: must be 1 to 8 characters, or none, not \"\"",
		"queues:\n  q: {key_separator: 123456789}":     "line 2: key_separator: must be 1 to 8 characters, or none, not \"123456789\"",
		"queues:\n  q:\n    key_separator: #":          "line 3: key_separator: must be a single value, in quotes if YAML gives it another meaning, such as \"#\"",
		"queues:\n  q: {key_separator: ~}":             "line 2: key_separator: must be a single value, in quotes",
		"queues:\n  q: {key_separator: [/]}":           "line 2: key_separator: must be a single value, in quotes",
		"kinds: []":                                    "cannot unmarshal",
		"{}\n---\n{}":                                  "more than one",
		"a: &a [*a]":                                   "",
		"queues:\n  q: {retention: 90}":                "line 2: retention: must be a duration such as 90s, 10m or 2d, or none, not \"90\"",
		"queues:\n  q: {failed_retention: never}":      "line 2: failed_retention: must be a duration",
	} {
		_, err := config.Parse([]byte(content))
		require.ErrorContains(t, err, want, content)
	}
	_, err := config.Load("/does/not/exist")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The parser never panics, and what it accepts has been checked.
func FuzzParse(f *testing.F) {
	f.Add([]byte("kinds: {a: {command: x, limits: {core: 1KiB}, timeout: 1s}}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := config.Parse(content)
		if err != nil {
			return
		}
		for name, kind := range file.Kinds {
			require.NotEmpty(t, name)
			require.True(t, len(kind.Command) > 0 || len(kind.Stream) > 0 || kind.HTTP != "" || name == config.ExecKind)
		}
	})
}
