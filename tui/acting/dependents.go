package acting

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
)

// withDependentsAction lets the selected jobs run again, and lets the jobs wait for them again that were
// cancelled with them.
func (p *Part) withDependentsAction(selected screen.Selection) screen.Action {
	return screen.Action{
		Disabled: func() string {
			if selected.All != nil {
				return "not for all that match: mark the jobs"
			}
			return Refusal(selected, noRequeue)
		},
		Run: func() tea.Msg { return p.askWithDependents(selected.Targets) },
	}
}

// askWithDependents asks always: how many jobs it comes to is not known before.
func (p *Part) askWithDependents(targets []operator.Target) tea.Msg {
	who, count := about{jobs: len(targets)}, len(targets)
	ids := make([]string, count)
	for i, target := range targets {
		ids[i] = strconv.FormatInt(target.ID, 10)
	}
	title := "requeue " + format.Count(count, "job")
	if count == 1 {
		title = fmt.Sprintf("requeue job %s, %s,", ids[0], targets[0].State)
	}
	ask := request.Ask{
		Title: title + " with dependents",
		Details: []string{
			"effect    " + who.pick("it may run at once, and jobs that were cancelled with it wait for it again",
				"they may run at once, and jobs that were cancelled with them wait for them again"),
			"          " + who.pick("if it has changed meanwhile, nothing is done", "those that have changed meanwhile are left alone") + "; " + p.Key(command.Undo) + " undoes all of it",
		},
		Yes: p.change(command.RequeueWithDependents, undoTimeout, func(ctx context.Context, w Writer) tea.Msg {
			acted, err := w.RequeueWithDependents(ctx, targets...)
			return withDependents{Result{command.Requeue, acted, err}}
		}),
	}
	if count <= commandIDsMax {
		ask.Details = append(ask.Details, "as a command   "+p.Place().Program.Line("requeue "+strings.Join(ids, " ")+" --with-dependents"))
	}
	if p.Place().Confirm {
		ask.Typed = TypedCount(int64(count), "requeue")
	}
	return ask
}

// commandIDsMax is how many ids a command line in a question has.
const commandIDsMax = 5

// withDependents is what came of a requeue with dependents.
type withDependents struct{ Result }

// Text says what came of it.
func (r withDependents) Text() string {
	text := r.Result.Text()
	if r.Acted == nil || r.Acted.Dependents == nil {
		return text
	}
	dependents := *r.Acted.Dependents
	text += ", with " + format.Count(dependents.Requeued, "dependent")
	if dependents.Refused > 0 {
		text += fmt.Sprintf(", %s stay cancelled: job %d: %s", format.Number(dependents.Refused), dependents.Problems[0].ID, dependents.Problems[0].Problem)
	}
	return text
}
