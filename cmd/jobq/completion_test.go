package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The completions of a release complete commands and flags. Method: bash, which is
// everywhere, presses the key; of the other shells the scripts are read.
func TestCompletions(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for shell, want := range map[string]string{"bash": "__start_jobq", "zsh": "#compdef jobq", "fish": "complete -c jobq"} {
		script, stderr, code := invoke(t, "", "completion", shell)
		require.Zero(t, code, stderr)
		require.Contains(t, script, want)
		file := filepath.Join(folder, shell)
		require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
		if _, err := exec.LookPath(shell); err == nil {
			out, err := exec.Command(shell, "-n", file).CombinedOutput()
			require.NoError(t, err, string(out))
		}
	}
	for line, want := range map[string][]string{
		"jobq worke":                 {"worker", "workers"},
		"jobq worker --metrics-":     {"--metrics-addr"},
		"jobq queues pau":            {"pause"},
		"jobq no-such-command --fla": nil,
	} {
		// A key: the function that the script has for jobq leaves what it finds in COMPREPLY.
		press := exec.Command("bash", "-euc", `
			jobq() { `+asCommand+`=1 "$BINARY" "$@"; }
			source "$FOLDER/bash"
			COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_KEY=9
			read -ra COMP_WORDS <<<"$1"
			COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
			compopt() { :; } # there is no line to edit
			_get_comp_words_by_ref() { # the package bash-completion has it
				words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
			}
			COMPREPLY=()
			set +eu
			__start_jobq
			printf '%s\n' "${COMPREPLY[@]}"`, "bash", line)
		press.Env = append(os.Environ(), "BINARY="+os.Args[0], "FOLDER="+folder)
		out, err := press.CombinedOutput()
		require.NoError(t, err, string(out))
		var got []string
		for _, found := range strings.Split(strings.TrimSpace(string(out)), "\n") {
			if word, _, _ := strings.Cut(found, " "); word != "" {
				got = append(got, word)
			}
		}
		require.Equal(t, want, got, line)
	}
}
