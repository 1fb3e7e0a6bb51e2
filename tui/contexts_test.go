package tui

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/commandline"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/screen"
)

// other makes contexts to go to: prod, which is another fake, and gone, which
// does not answer.
func (b *bench) other() *fake {
	there := newFake()
	b.env.contexts = []Context{{Name: "gone"}, {Name: "prod", Production: true, Confirm: true}}
	b.env.connect = func(_ context.Context, name string) (*link, error) {
		if name == "gone" {
			return nil, fmt.Errorf("connect: %w", jobq.ErrUnavailable)
		}
		return &link{Context: b.env.contexts[1], reader: there, writer: there, host: "db-9", schema: "work"}, nil
	}
	return there
}

// In another context everything is of the other database, and nothing of the
// one before is left: not its rows, its marks, its answers, nor its undo.
func TestSwitchContext(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{Contexts, "2"}, {Contexts, "j", Accept}, {Palette, "ctx prod", Accept}, {Palette, "ctx p", Complete, Accept}} {
		b := newBench(120, 35)
		there := b.other()
		there.queues = []monitor.Queue{{Name: "elsewhere"}}
		b.press(Jobs, Requeue, Mark)
		b.polling.Renew(data.Queues)
		stale := b.polling.Ask(&fake{queues: []monitor.Queue{{Name: "stale"}}}, data.Wants(data.Queues))()
		b.press(keys...)
		require.Contains(t, b.plain(), "elsewhere", keys)
		require.Contains(t, b.plain(), "jobq prod  db-9/app  schema work")
		b.Update(stale)
		require.NotContains(t, b.plain(), "stale")
		require.Zero(t, b.marked())
		b.press(Undo)
		require.Empty(t, there.written)
		b.press(Jobs, Requeue)
		require.Empty(t, there.written, "it asks")
		b.tick(time.Second)
		b.press(Yes)
		require.Len(t, there.written, 1)
		require.Len(t, b.fake.written, 1)
	}
}

// A command line that is copied acts on the database that the UI shows, and
// not on the shell's; none acts on all jobs, which the command would refuse.
func TestCopyNamesDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.other()
	b.fake.audit = []monitor.AuditEntry{{ID: 17, Action: jobq.ActionRequeue, At: noon, IDMax: 5, SnapshotAt: &b.fake.now}}
	for _, key := range []string{Overview, Jobs, Queues, Workers, Schedules, Audit} {
		b.press(key)
		for _, item := range b.copied() {
			require.NotContains(t, item.Text, "--context")
		}
	}
	b.env.link.Flags = []string{"--context", "the prod", "--schema", "work"}
	commands := 0
	for _, key := range []string{Overview, Jobs, Queues, Workers, Schedules, Audit} {
		b.press(key)
		for _, item := range b.copied() {
			if strings.HasPrefix(item.Text, "jobq ") {
				commands++
				require.True(t, strings.HasPrefix(item.Text, "jobq --context 'the prod' --schema work "), item.Text)
			}
		}
	}
	require.Greater(t, commands, 15)
	require.Contains(t, b.env.place().Program.Items(screen.Jobs, screen.Selection{Targets: make([]operator.Target, 1)}, "edit 7 --priority 1"),
		commandline.Item{Name: "last edit", Text: "jobq --context 'the prod' --schema work edit 7 --priority 1"})
	b.press(Jobs)
	b.press(SelectAll)
	require.Len(t, b.copied(), 1, "the list only: no command acts on all jobs")
	b.press(Requeue)
	require.NotContains(t, b.plain(), "as a command")
	b.press(Leave, Back, Filter, "queue:email", Accept, SelectAll)
	require.Contains(t, b.copied(), commandline.Item{Name: "cancel", Text: "jobq --context 'the prod' --schema work cancel --filter queue:email"})
	b.press(Requeue)
	require.Contains(t, b.plain(), "as a command   jobq --context 'the prod' --schema work requeue --filter queue:email")
}

// A context that does not answer leaves the screen as it is; no action can be
// begun on the way to another one, and none be under way.
func TestSwitchContextRefused(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Contexts)
	require.Contains(t, b.toast, "your settings name none")
	b.other()
	b.press(Jobs, Palette, "ctx gone", Accept)
	require.Contains(t, b.toast, "context gone: connect: ")
	require.Equal(t, "staging", b.env.name)
	b.press(Requeue)
	require.Len(t, b.fake.written, 1, "it goes on where it was")
	b.press(Palette, "ctx nowhere", Accept)
	require.Contains(t, b.plain(), `no context "nowhere"; there are gone, prod`)
	b.press(Leave)

	command := b.goTo("prod")
	b.press(Requeue)
	require.Equal(t, "requeue: on the way to prod", b.toast)
	require.Len(t, b.fake.written, 1)
	b.do(command)
	require.Equal(t, "prod", b.env.name)

	b = newBench(120, 35)
	b.other()
	b.press(Jobs)
	acting := b.hold(Requeue)
	b.press(Palette, "ctx prod", Accept)
	require.Contains(t, b.plain(), "an action is under way")
	b.do(acting)
	b.press(Accept)
	require.Equal(t, "prod", b.env.name)
}

// The operator's own keys do what he says, in the hints and the help as well;
// what cannot be meant names both sides of the mistake.
func TestOwnKeys(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	var err error
	b.env.commands, err = command.WithKeys(map[string][]string{"requeue": {"Q"}, "pause": {"r"}})
	require.NoError(t, err, "pause and requeue have no screen in common")
	b.press(Jobs, Requeue)
	require.Empty(t, b.fake.written)
	require.Contains(t, b.plain(), "Q requeue")
	b.press("Q")
	require.Len(t, b.fake.written, 1)
	for want, keys := range map[string]map[string][]string{
		`no command "requue" for "R"`: {"requeue": {"X"}, "requue": {"R"}},
		`"D" is requeue and delete`:   {"requeue": {"D"}},
		`"g" is top and cancel`:       {"cancel": {"g"}},
		`undo: a key is missing`:      {"undo": {}},
		`ctrl+c always quits`:         {"undo": {"ctrl+c"}},
	} {
		_, err := (&Config{Keys: keys}).model()
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// Before the database has answered there is something to see, and nothing to
// do; a database that cannot be reached in the first place ends the UI.
func TestBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	there := b.other()
	fresh := newModel(b.env)
	fresh.env.use(&link{Context: Context{Name: "prod"}})
	b.Model = fresh
	b.resize(120, 35)
	command := b.connect("prod")
	require.Contains(t, b.plain(), "connecting …   --")
	b.press(Jobs, Requeue, Pause)
	require.Empty(t, there.written)
	require.Empty(t, there.filters, "nothing is asked")
	b.do(command)
	b.frame()
	require.Contains(t, b.plain(), "jobq prod  db-9/app")
	require.NotEmpty(t, there.filters)

	fresh = newModel(b.env)
	fresh.env.use(&link{})
	_, quit := fresh.Update(fresh.connect("gone")())
	require.IsType(t, tea.QuitMsg{}, quit())
	require.ErrorIs(t, fresh.failed, jobq.ErrUnavailable)
}
