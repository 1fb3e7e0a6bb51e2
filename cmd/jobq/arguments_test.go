package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A term that begins with - is a term of list wherever it stands, and other
// commands say where it belongs. A long flag with one dash is not taken for a
// short one whose value is the rest of the word.
func TestArguments(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"list -queue:x":                              "list -- -queue:x",
		"list -queue:x --limit 5":                    "list --limit 5 -- -queue:x",
		"list state:failed -args.a=1 -o id -- -word": "list state:failed -o id -- -args.a=1 -word",
		"list --queue -queue:x":                      "list --queue -queue:x",
		"list -o -queue:x":                           "list -o -queue:x",
		"list -ojson":                                "list -ojson",
		"--schema s list -age:>1d":                   "--schema s list -- -age:>1d",
		"list --watch -id:4":                         "list --watch -- -id:4",
		"stats --watch 5s --span 1h":                 "stats --watch=5s --span 1h",
		"list --watch state:failed":                  "list --watch state:failed",
		"delete --filter -queue:x":                   "delete --filter -queue:x",
		"delete --filter=-queue:x":                   "delete --filter=-queue:x",
		"enqueue a -q queue":                         "enqueue a -q queue",
		"enqueue --exec -- convert -queue 4":         "enqueue --exec -- convert -queue 4",
		"enqueue a -priority5":                       "enqueue a -priority5",
		"nonsense -queue:x":                          "nonsense -queue:x",
	} {
		args, err := arguments(newRootCommand(&app{}), strings.Fields(line))
		require.NoError(t, err, line)
		require.Equal(t, want, strings.Join(args, " "), line)
	}
	for line, want := range map[string]string{
		"list -queue=x":                              "-queue=x: write --queue=x, with two dashes",
		"list -json":                                 "write --json",
		"enqueue a {} -queue images":                 "write --queue, with two dashes",
		"worker -queue=images":                       "write --queue=images",
		"logs -follow 1":                             "write --follow",
		"edit 1 -queue:x":                            "--filter '-queue:x'",
		"delete -queue:x":                            "--filter '-queue:x'",
		"requeue -err:x --yes":                       "--filter '-err:x'",
		"cancel -meta.a=b":                           "--filter '-meta.a=b'",
		"list -resize":                               "goes behind --: jobq list -- -resize",
		"list --qeue x":                              "did you mean --queue?",
		"lst":                                        "did you mean list?",
		"queues pasue x":                             "did you mean pause?",
		"queues set":                                 "an argument is missing; usage: jobq queues set NAME",
		"workers foo":                                `unknown command "foo": see jobq workers --help`,
		"help enqueu":                                "did you mean enqueue?",
		"stats 5s":                                   `"5s" is one argument too many; usage: jobq stats`,
		"enqueue a --priority x":                     `--priority "x": must be a whole number from -32768 to 32767`,
		"enqueue a --max-attempts 1.5":               "must be a whole number",
		"janitor events --before x":                  "must be a whole number",
		"queues set a reset_on_reap=maybe":           "reset_on_reap: must be yes or no",
		"enqueue a --run-at 2h --delay 1h":           "and not both",
		"enqueue a --max-lost 0":                     "--max-lost must be more than 0",
		"enqueue a --max-attempts 0":                 "--max-attempts must be more than 0",
		"worker --run a=b --drain-timeout 0":         "--drain-timeout must be more than 0",
		"worker --run a=b --rest-after-failures -1":  "--rest-after-failures must not be negative",
		"worker --run a=b --fail-unreadable-after 0": "--fail-unreadable-after must be more than 0",
		"janitor --reap-batch 0":                     "--reap-batch must be more than 0",
		"migrate up --target 99":                     "versions are 1 to",
		"migrate down --target -2":                   "or -1 for nothing left",
		"worker --run caf\xe9=x":                     "not valid UTF-8",
		"worker --run a=b -q caf\xe9":                "not valid UTF-8",
		"enqueue a --run-at tomorow":                 "not a time: write 2h",
		"enqueue a --delay 1x":                       "a duration is a number with a unit",
		"queues set a lease=-5m":                     "lease: must be a duration such as 90s, 10m or 2d",
		"job snooze 5":                               "5 has no unit: write 5s",
		"settings set retention 30d":                 "there are finished_retention",
		"settings set finished_retention 30":         "30 has no unit",
	} {
		_, stderr, code := invoke(t, "", strings.Fields(line)...)
		require.Equal(t, exitUsage, code, line)
		require.Contains(t, stderr, want, line)
	}
}

// A text that a script's unset variable leaves empty is refused by every command,
// where it would mean the default: another database, or all queues.
func TestEmptyFlags(t *testing.T) {
	t.Parallel()
	mayBeEmpty := map[string]bool{"reason": true, "tag": true, "message": true, "stage": true, "filter": true}
	refused := 0
	var walk func(command *cobra.Command)
	walk = func(command *cobra.Command) {
		command.Flags().AddFlagSet(command.InheritedFlags())
		command.Flags().VisitAll(func(flag *pflag.Flag) {
			kind := flag.Value.Type()
			isText := kind == "string" || kind == "strings" || kind == "stringArray"
			require.NotEqual(t, "stringSlice", kind, "%s --%s: it would be read as CSV, which has its own idea of a quote", command.CommandPath(), flag.Name)
			if !isText || mayBeEmpty[flag.Name] || !command.Runnable() || command.Hidden {
				return
			}
			refused++
			args := append(strings.Fields(command.CommandPath())[1:], "--"+flag.Name+"=")
			if command.Args != nil && command.Args(command, nil) != nil { // it wants some
				args = append(args, "1")
			}
			_, stderr, code := invoke(t, "", args...)
			require.Equal(t, exitUsage, code, "%v: %s", args, stderr)
			require.Regexp(t, "--"+flag.Name+` is empty|argument is missing`, stderr, "%v", args)
		})
		for _, below := range command.Commands() {
			walk(below)
		}
	}
	walk(newRootCommand(&app{}))
	require.Greater(t, refused, 80)
}

// A list takes terms that begin with -.
func TestListWithout(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	query[int64](t, pool, "select jobq.enqueue('resize', queue => 'email')")
	query[int64](t, pool, "select jobq.enqueue('report', queue => 'bulk')")
	for line, want := range map[string]string{
		"-queue:email":                    "2\n",
		"!queue:email":                    "2\n",
		"!resize":                         "2\n",
		"-queue:email -o id -kind:report": "",
		"-- -resize":                      "2\n",
		"state:available -queue:bulk":     "1\n",
	} {
		out, stderr, code := invoke(t, "", append([]string{"list", "--database-url", url, "-o", "id"}, strings.Fields(line)...)...)
		require.Zero(t, code, stderr)
		require.Equal(t, want, out, line)
	}
	for line, want := range map[string]string{
		"queue:nothing":        "no job matches\n",
		"queue:nothing --json": "",
		"--queue emial":        "no job matches\nno queue \"emial\" is known: no job, no worker and no settings name it; did you mean email?\n",
	} {
		_, stderr, code := invoke(t, "", append([]string{"list", "--database-url", url}, strings.Fields(line)...)...)
		require.Zero(t, code)
		require.Equal(t, want, stderr, line)
	}
}

// Every flag says what it is in words that pflag does not take apart: what is in
// backquotes in a usage becomes the name of the value, so `--lease jobq queues
// set` was in the help.
func TestFlagHelp(t *testing.T) {
	t.Parallel()
	flags := 0
	var walk func(command *cobra.Command)
	walk = func(command *cobra.Command) {
		check := func(flag *pflag.Flag) {
			flags++
			name, usage := pflag.UnquoteUsage(flag)
			require.NotContains(t, name, " ", "%s --%s", command.CommandPath(), flag.Name)
			require.NotContains(t, flag.Usage, "`", "%s --%s", command.CommandPath(), flag.Name)
			require.NotEmpty(t, usage, "%s --%s", command.CommandPath(), flag.Name)
		}
		command.NonInheritedFlags().VisitAll(check)
		for _, below := range command.Commands() {
			walk(below)
		}
	}
	walk(newRootCommand(&app{}))
	require.Greater(t, flags, 100)
}

// What is most like a word is found, and what is not like it is not offered.
func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"email", "emails", "default", "images", "a"}
	for word, want := range map[string]string{
		"emial": "email", "EMAIL": "email", "emal": "email", "image": "images", "defualt": "default", "b": "", "sms": "", "": "", "résumé": "",
	} {
		require.Equal(t, want, nearest(word, names), word)
	}
}

// A worker refuses names that look like a list, a pattern or a number of slots, and says what was meant:
// it would wait for ever for jobs that nobody adds.
func TestNamesThatMeanSomethingElse(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, file := range map[string]string{
		"all":   "kinds:\n  \"*\": {command: cat}\n",
		"list":  "queues:\n  good: {slots: 1}\n  \"a,b\": {slots: 2}\nkinds:\n  k: {command: cat}\n",
		"colon": "queues:\n  \"foo:5\": {}\nkinds:\n  k: {command: cat}\n",
		"queue": "queues:\n  \"mail*\": {}\nkinds:\n  k: {command: cat}\n",
	} {
		require.NoError(t, os.WriteFile(folder+"/"+name+".yaml", []byte(file), 0o600))
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-q", "a,b", "--run", "k=cat"}, "for several queues write -q a -q b"},
		{[]string{"-q", "a,b=4", "--run", "k=cat"}, "for several queues write -q a -q b"},
		{[]string{"-q", "foo:5", "--run", "k=cat"}, "for 5 slots write -q foo=5"},
		{[]string{"-q", "*", "--run", "k=cat"}, "write -q for each"},
		{[]string{"--run", "*=cat"}, "there is no handler for every kind"},
		{[]string{"--run-stream", "mail.*=cat"}, "there is no handler for every kind"},
		{[]string{"--run-http", "a,b=http://127.0.0.1:1"}, "repeat the handler for each"},
		{[]string{"--config", folder + "/all.yaml"}, "there is no handler for every kind"},
		{[]string{"--config", folder + "/list.yaml"}, `list.yaml: line 3: queues: a,b: a queue whose name has a comma; write each queue as an entry of its own`},
		{[]string{"--config", folder + "/colon.yaml"}, "line 2: queues: foo:5: a queue whose name ends with a colon and a number; for 5 slots write foo: {slots: 5}"},
		{[]string{"--config", folder + "/queue.yaml"}, "line 2: queues: mail*: a queue whose name has an asterisk; a worker claims only from queues that it names: write each as an entry of its own"},
	} {
		_, stderr, code := invoke(t, "", append([]string{"worker", "--database-url", "postgres://127.0.0.1:1/x"}, test.args...)...)
		require.Equal(t, exitUsage, code, stderr)
		require.Contains(t, stderr, test.want)
	}
	for _, name := range []string{"mail:eu", "a.b", "a b", "5", "a:5x"} {
		problem, _, _ := queueNameProblem(name)
		require.Empty(t, problem, name)
	}
	require.NoError(t, refuseKindName("image:5"))
}
