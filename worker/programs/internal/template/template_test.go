package template_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/worker/programs/internal/template"
)

// Each word stays one word, whatever is put into it; what names no part of a job
// stays as it is; and what the job lacks is an error.
func TestExpand(t *testing.T) {
	t.Parallel()
	args := `{"name": "x; rm -rf $HOME \"${job.id}", "a": {"n": 1234567890123456789}, "list": [1, "b"], "empty": "", "nul": "a\u0000b", "none": null}`
	job := map[string]any{"id": int64(7), "kind": "k", "lease_token": int64(1 << 60)}
	for _, test := range []struct{ word, want, problem string }{
		{"", "", ""},
		{"plain", "plain", ""},
		{"${args.name}", `x; rm -rf $HOME "${job.id}`, ""},
		{"n=${args.a.n}", "n=1234567890123456789", ""},
		{"${args.list}${args.empty}", `[1,"b"]`, ""},
		{"${job.id}/${job.kind}/${job.lease_token}", "7/k/1152921504606846976", ""},
		{"${HOME} $5 ${", "${HOME} $5 ${", ""},
		{"${args.name", "${args.name", ""},
		{"${${job.kind}}", "${k}", ""},
		{"${args.none}", "", "needs args.none"},
		{"${args.a.x}", "", "needs args.a.x"},
		{"${args.list.0}", "", "needs args.list.0"},
		{"${job.args}", "", "needs job.args"},
		{"${args.nul}", "", "NUL"},
	} {
		words, err := template.Expand([]string{"first", test.word}, json.RawMessage(args), job)
		if test.problem != "" {
			require.ErrorContains(t, err, test.problem, test.word)
			continue
		}
		require.NoError(t, err, test.word)
		require.Equal(t, []string{"first", test.want}, words)
	}
}
