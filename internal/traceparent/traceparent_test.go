package traceparent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// What W3C Trace Context calls valid is taken, and nothing else: these texts go into
// headers and environments.
func TestParse(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		valid:             valid,
		valid[:53] + "03": valid[:53] + "03",
		"01" + valid[2:]:  valid,
		"cc" + valid[2:] + "-more of a later version": valid,

		"":                     "",
		"ff" + valid[2:]:       "",
		"01" + valid[2:] + "x": "",
		valid + "-x":           "",
		valid + "\n":           "",
		valid[:54]:             "",
		strings.ToUpper(valid): "",
		"00-" + strings.Repeat("0", 32) + valid[35:]: "",
		valid[:36] + strings.Repeat("0", 16) + "-01": "",
		valid[:53] + "0g":                                         "",
		valid[:40] + "\x00" + valid[41:]:                          "",
		strings.Replace(valid, "-", "_", 1):                       "",
		valid[:35] + "_" + valid[36:]:                             "",
		valid[:52] + "_" + valid[53:]:                             "",
		"zz" + valid[2:]:                                          "",
		"00-0af7651916cd43dd8448eb211c80319é-b7ad6b7169203331-01": "",
	} {
		metadata, err := json.Marshal(map[string]string{"traceparent": given})
		require.NoError(t, err)
		require.Equal(t, Context{Parent: want}, Of(metadata), "%q", given)
	}
	context := Context{Parent: valid}
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 01", fmt.Sprint(context.TraceID(), " ", context.SpanID(), " ", context.Flags()))
}

// Metadata of any form are read, and a state that no header can hold is left out.
func TestOf(t *testing.T) {
	t.Parallel()
	for metadata, want := range map[string]Context{
		``:                                    {},
		`null`:                                {},
		`[]`:                                  {},
		`"traceparent"`:                       {},
		`{"traceparent": 5}`:                  {},
		`{"traceparent": null}`:               {},
		`{"traceparent": {"traceparent": 1}}`: {},
		`{"TRACEPARENT": "` + valid + `"}`:    {},
		`{"traceparent": "` + valid:           {},
		`{"inner": {"traceparent": "` + valid + `"}}`:                                        {},
		`{"tracestate": "a=1"}`:                                                              {},
		`{"traceparent": "` + valid + `", "tracestate": "a=1,b@c=~ !"}`:                      {valid, "a=1,b@c=~ !"},
		`{"traceparent": "` + valid + `", "tracestate": 1}`:                                  {valid, ""},
		`{"traceparent": "` + valid + `", "tracestate": "a=1\nX: y"}`:                        {valid, ""},
		`{"traceparent": "` + valid + `", "tracestate": "a=é"}`:                              {valid, ""},
		`{"traceparent": "` + valid + `", "tracestate": "` + strings.Repeat("a", 512) + `"}`: {valid, strings.Repeat("a", 512)},
		`{"traceparent": "` + valid + `", "tracestate": "` + strings.Repeat("a", 513) + `"}`: {valid, ""},
	} {
		require.Equal(t, want, Of(json.RawMessage(metadata)), metadata)
	}
}

// What a run starts belongs to the run, if that is a span, and else to what has added
// its job.
func TestOfRun(t *testing.T) {
	t.Parallel()
	job, run := Context{Parent: valid}, Context{Parent: strings.ReplaceAll(valid, "b7", "c8"), State: "a=1"}
	metadata := json.RawMessage(`{"traceparent": "` + valid + `"}`)
	require.Equal(t, job, OfRun(context.Background(), metadata))
	require.Equal(t, run, OfRun(With(context.Background(), run), metadata))
}
