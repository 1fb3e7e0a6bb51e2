package editing

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/acting"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/theme"
	"github.com/jobq-dev/jobq/tui/widget"
)

// database has one job that waits, and takes one change.
type database struct {
	data.Reader
	acting.Writer
	changed *operator.JobChange
	err     error
}

func (d *database) Get(_ context.Context, id int64) (*jobq.Job, error) {
	return &jobq.Job{ID: id, State: jobq.StateAvailable, Queue: "email", Kind: "Send", Args: []byte(`{"tenant":1}`)}, nil
}

func (d *database) Edit(_ context.Context, change operator.JobChange, targets ...operator.Target) (*operator.Acted, error) {
	d.changed = &change
	return &operator.Acted{AuditID: 5, Jobs: []operator.ActedJob{{ID: targets[0].ID, After: jobq.StateAvailable, Changed: true}}}, d.err
}

var waiting = screen.Selection{Targets: []operator.Target{{ID: 42, State: jobq.StateAvailable}}}

func newPart(t *testing.T) (*Part, *database) {
	t.Helper()
	made, err := theme.New(theme.Settings{Bare: true})
	require.NoError(t, err)
	d := &database{}
	kit := acting.Kit{Key: command.Key, Place: func() acting.Place { return acting.Place{Reader: d, Writer: d} }}
	return New(kit, &widget.Painter{Theme: made}), d
}

// edit goes with a job through an editor that replaces a text, up to the question.
func edit(t *testing.T, p *Part, old, text string) request.Later {
	t.Helper()
	ready := p.Actions(waiting)[command.Edit].Run().(request.Begin).Run()
	editor, ok := p.Update(ready).(request.Editor)
	require.True(t, ok)
	t.Cleanup(editor.File.Remove)
	content, err := editor.File.Read()
	require.NoError(t, err)
	require.NoError(t, editor.File.Write([]byte(strings.ReplaceAll(string(content), old, text))))
	later, ok := p.Update(editor.Ended(nil)).(request.Later)
	require.True(t, ok)
	return later
}

// A job goes to a file, to the editor and to a question, and is stored on a yes: then
// its file is removed, and the same change is a command.
func TestEditAlone(t *testing.T) {
	t.Parallel()
	p, d := newPart(t)
	ask := edit(t, p, `"tenant": 1`, `"tenant": 2`).Overlay.(request.Ask)
	require.Equal(t, "edit job 42, available", ask.Title)
	require.Nil(t, d.changed)
	stored := ask.Yes.(request.Begin).Run().(Stored)
	require.IsType(t, acting.Result{}, p.Update(stored))
	require.JSONEq(t, `{"tenant":2}`, string(d.changed.Args))
	require.Equal(t, `edit 42 --args '{"tenant":2}'`, p.Last())
	_, err := os.Stat(stored.File.Path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// What could not be stored says why, and stays in its file.
func TestNotStored(t *testing.T) {
	t.Parallel()
	p, d := newPart(t)
	d.err = jobq.ErrUnavailable
	ask := edit(t, p, `"tenant": 1`, `"tenant": 2`).Overlay.(request.Ask)
	stored := ask.Yes.(request.Begin).Run().(Stored)
	requests, ok := p.Update(stored).(request.All)
	require.True(t, ok)
	note := requests[1].(request.Later).Overlay.(request.Note)
	require.Equal(t, "edit job 42: not done", note.Title)
	require.Contains(t, note.Lines[1], stored.File.Path)
	require.FileExists(t, stored.File.Path)
	require.Empty(t, p.Last())
}

// What cannot be read, and what the database calls invalid, can be edited again, with
// what is wrong at the top.
func TestEditAgainAlone(t *testing.T) {
	t.Parallel()
	p, d := newPart(t)
	ask := edit(t, p, `"tenant": 1`, `"tenant": x`).Overlay.(request.Ask)
	require.Equal(t, "edit job 42: that cannot be", ask.Title)
	ready := ask.Yes.(request.Begin).Run().(Ready)
	require.NoError(t, ready.Err)
	content, err := ready.File.Read()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(content), "#! line "), string(content))
	later, ok := p.Update(Stored{Edit: ready.Edit, Err: jobq.ErrInvalid}).(request.Later)
	require.True(t, ok)
	require.Equal(t, "edit job 42: that cannot be", later.Overlay.(request.Ask).Title)
	require.Nil(t, d.changed)
	_, ok = p.Update(Edited{Edit: ready.Edit, Err: errors.New("exit status 1")}).(request.Later)
	require.True(t, ok)
}
