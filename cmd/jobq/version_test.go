package main

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/sql/migrations"
)

// `jobq version` names the version, the commit where git was there, the schema
// and Go, whichever way the binary was built.
func TestVersion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"a release": {
			debug.BuildInfo{
				GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"},
				Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc123"}},
			},
			"jobq v0.1.0, commit abc123, schema version N, go1.26.8\n",
		},
		"go install": {debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"}}, "jobq v0.1.0, schema version N, go1.26.8\n"},
		"go run":     {debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}}, "jobq devel, schema version N, go1.26.8\n"},
	} {
		b := buildOf(&test.info)
		require.Equal(t, migrations.Latest(), b.Schema, name)
		b.Schema = 0
		var out strings.Builder
		b.write(&out)
		require.Equal(t, test.want, strings.Replace(out.String(), "version 0", "version N", 1), name)
	}
	out, stderr, code := invoke(t, "", "version", "--json")
	require.Zero(t, code, stderr)
	var b build
	require.NoError(t, json.Unmarshal([]byte(out), &b))
	require.Equal(t, runtime.Version(), b.Go)
	require.NotEmpty(t, b.Version)
}
