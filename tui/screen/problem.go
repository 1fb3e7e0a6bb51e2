package screen

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Problem says in one line why something is not up to date.
func Problem(err error) string {
	if errors.Is(err, jobq.ErrTimeout) {
		return fmt.Sprintf("timed out, asking again in %s", data.AskAgain)
	}
	return ShortError(err)
}

// ShortError is an error for one line: without the parts that only say where it
// came from.
func ShortError(err error) string {
	switch {
	case errors.Is(err, jobq.ErrTimeout):
		return "timed out"
	case errors.Is(err, jobq.ErrNotFound):
		return "no such job: it was deleted, or retention has removed it"
	case errors.Is(err, jobq.ErrNotMigrated), errors.Is(err, jobq.ErrNewerSchema):
		return widget.Clean(err.Error())
	}
	text := err.Error()
	if _, after, found := strings.Cut(text, "ERROR: "); found {
		text = after
	}
	return widget.Clean(text)
}
