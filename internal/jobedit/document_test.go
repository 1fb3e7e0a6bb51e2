package jobedit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/operator"
)

var due = time.Date(2026, 11, 21, 14, 2, 31, 123456000, time.UTC)

func newJob() *jobq.Job {
	return &jobq.Job{
		ID: 7, Queue: "email", Priority: 3, RunAt: due, MaxAttempts: 25, Tags: []string{"eu"}, Metadata: json.RawMessage(`{"trace": "x"}`),
		Args: json.RawMessage("{\"n\": 12345678901234567890.10, \"z\": \"<b>\", \"a\": \"# no comment\", \"evil\": \"\u202e\u009b31m\"}"),
	}
}

// A document that nobody has touched changes nothing; it keeps numbers and the
// order of keys, and has nothing that a terminal would obey.
func TestDocumentRoundTrip(t *testing.T) {
	t.Parallel()
	for _, job := range []*jobq.Job{newJob(), {RunAt: due, Args: json.RawMessage("null")}, {Args: json.RawMessage(`[]`)}} {
		text := jobedit.Document(job, "Job 7", "# heading")
		require.NotContains(t, string(text), "\u202e")
		require.NotContains(t, string(text), "\u009b")
		for _, content := range [][]byte{text, []byte(strings.ReplaceAll(string(text), "\n", "\n\n # more\n")), nil, []byte("# gone\n")} {
			change, err := jobedit.Changes(content, job)
			require.NoError(t, err, "%s", content)
			require.True(t, change.IsEmpty(), "%+v in %s", change, content)
		}
	}
	require.Contains(t, string(jobedit.Document(newJob())), `"n": 12345678901234567890.10,
    "z": "<b>",`)
}

// What is changed in the text is what the change has, and nothing else.
func TestChanges(t *testing.T) {
	t.Parallel()
	job := newJob()
	later := due.Add(time.Hour)
	for name, test := range map[string]struct {
		from, to string
		want     operator.JobChange
	}{
		"queue":           {`"email"`, `"sms"`, operator.JobChange{Queue: new("sms")}},
		"priority":        {`"priority": 3`, `"priority": -3`, operator.JobChange{Priority: new(int16(-3))}},
		"run_at":          {`T14:`, `T15:`, operator.JobChange{RunAt: &later}},
		"run_at in words": {due.Format(time.RFC3339Nano), later.Format("2006-01-02 15:04:05.999999Z07"), operator.JobChange{RunAt: &later}},
		"max_attempts":    {`25`, `5`, operator.JobChange{MaxAttempts: new(5)}},
		"tags":            {`["eu"]`, `["eu", "b"]`, operator.JobChange{Tags: &[]string{"eu", "b"}}},
		"no tags":         {`["eu"]`, `null`, operator.JobChange{Tags: &[]string{}}},
		"no metadata":     {"{\n    \"trace\": \"x\"\n  }", `null`, operator.JobChange{Metadata: json.RawMessage("null")}},
		"args":            {"\"args\": {", "\"args\": {\"new\": 1,", operator.JobChange{Args: json.RawMessage("{\"new\": 1,\n    \"n\": 12345678901234567890.10,\n    \"z\": \"<b>\",\n    \"a\": \"# no comment\",\n    \"evil\": \"\\u202e\\u009b31m\"\n  }")}},
	} {
		text := string(jobedit.Document(job, "heading"))
		require.Contains(t, text, test.from, name)
		change, err := jobedit.Changes([]byte(strings.Replace(text, test.from, test.to, 1)), job)
		require.NoError(t, err, name)
		require.Equal(t, test.want, change, name)
		require.Len(t, jobedit.Differences(change, job), 1, name)
	}
}

// What is wrong is said with its line or its field.
func TestProblems(t *testing.T) {
	t.Parallel()
	job := newJob()
	text := string(jobedit.Document(job, "heading"))
	for from, test := range map[string][2]string{
		`"email",`:       {`"email"`, "line 4: invalid character '\"'"},
		`"queue"`:        {`"qeue"`, `unknown field "qeue"`},
		`"email"`:        {`12`, "line 3: queue must be a text, not number"},
		`: 3,`:           {`: 99999,`, "line 4: priority must be a whole number from -32768 to 32767, not number 99999"},
		`2026-11`:        {`tomorow`, "run_at: not a time: write 2h"},
		`25`:             {`null`, "max_attempts must not be null"},
		"  }\n}\n":       {"  }\n", "the text ends in the middle"},
		"\n}\n":          {"\n}\n{}\n", "there is more after the end"},
		"# heading\n{\n": {"[]\n{\n", "line 1: the document must be an object, not array"},
	} {
		require.Contains(t, text, from)
		changed := strings.Replace(text, from, test[0], 1)
		_, err := jobedit.Changes([]byte(changed), job)
		require.ErrorContains(t, err, test[1], changed)
		told := jobedit.WithProblem([]byte(changed), err.Error())
		require.Contains(t, string(told), "#! "+err.Error()+"\n")
		require.Equal(t, changed, string(jobedit.WithoutProblem(jobedit.WithProblem(told, "another"))))
	}
}

// Long texts that begin alike are shown where they differ.
func TestDifferences(t *testing.T) {
	t.Parallel()
	job := newJob()
	job.Args = json.RawMessage(`"` + strings.Repeat("ä", 500) + `1"`)
	change := operator.JobChange{Args: json.RawMessage(`"` + strings.Repeat("ä", 500) + `2"`), Priority: new(int16(5))}
	require.Equal(t, []jobedit.Difference{
		{"priority", "3", "5"},
		{"args", "..." + strings.Repeat("ä", 12) + `1"`, "..." + strings.Repeat("ä", 12) + `2"`},
	}, jobedit.Differences(change, job))
}

// No text makes the reader fail otherwise than with an error, and what it
// accepts of an untouched field stays untouched.
func FuzzChanges(f *testing.F) {
	job := newJob()
	f.Add(string(jobedit.Document(job)))
	f.Add("# x\n{\"tags\": null, \"args\": 1}")
	f.Fuzz(func(t *testing.T, text string) {
		change, err := jobedit.Changes([]byte(text), job)
		if err == nil {
			jobedit.Differences(change, job)
		}
	})
}
