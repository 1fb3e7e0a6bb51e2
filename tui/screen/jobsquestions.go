package screen

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/tui/data"
)

// pageQuestion is which page of which list is asked for.
type pageQuestion struct {
	match   string
	sort    jobq.Sort
	reverse bool
	recent  bool
	asked   int
	after   string
	limit   int
}

// question is the one whose answer is the first page.
func (s *JobList) question() pageQuestion {
	o := s.order()
	return pageQuestion{match: s.filterText(), sort: o.sort, reverse: o.reverse, recent: s.recent, asked: s.asked, limit: pageSize}
}

// moreQuestion is the one whose answer is the page after the rows.
func (s *JobList) moreQuestion() pageQuestion {
	question := s.question()
	question.after = s.next
	if s.toEnd {
		question.limit = endSize
	}
	return question
}

// filter is what the question asks of the database.
func (q pageQuestion) filter() jobq.Filter {
	return jobq.Filter{Match: q.match, Limit: q.limit, Sort: q.sort, Reverse: q.reverse, After: q.after}
}

// goesOn says whether the search goes on below the newest jobs: only by id do its pages
// keep the order.
func (q pageQuestion) goesOn() bool { return q.sort == jobq.SortNewest && !q.reverse }

// ask asks for the page, a window of ids at a time when all jobs are too many.
func (q pageQuestion) ask(ctx context.Context, r data.Reader) (any, error) {
	filter := q.filter()
	var w window
	if q.recent {
		var searching bool
		if w, searching = windowOf(q.after); searching {
			filter.After = w.after
		} else {
			newest, err := r.List(ctx, jobq.Filter{Limit: 1})
			switch {
			case err != nil:
				return nil, err
			case len(newest.Jobs) == 0:
				return newest, nil
			}
			w = window{newest: newest.Jobs[0].ID, upper: newest.Jobs[0].ID}
		}
		filter.Match += fmt.Sprintf(" id:>%d id:<=%d", w.lower(), w.upper)
	}
	page, err := r.List(ctx, filter)
	if err != nil {
		return nil, err
	}
	if q.recent && q.goesOn() {
		page.Cursor = w.next(page.Cursor)
	}
	return page, nil
}

// window is where a search among too many jobs is: it reads those from upper down to
// lower, and then the window below. Its text is the cursor of the page that follows.
//
// Example: with the newest id 5,000,000, the first window is from there down to 4,600,001,
// and 13 windows are all jobs.
type window struct {
	newest, upper int64
	after         string // where in it the page before has ended; empty to begin
}

// lower is the id below the window.
func (w window) lower() int64 { return max(w.upper-recentJobs, 0) }

// next is the cursor of what follows after a page that has ended there; empty when
// all jobs were searched.
func (w window) next(cursor string) string {
	if w.after = cursor; cursor == "" {
		w.upper = w.lower()
	}
	if w.upper == 0 {
		return ""
	}
	return fmt.Sprintf("window %d %d %s", w.newest, w.upper, w.after)
}

// windowOf reads a cursor; false where it is not one of a window.
func windowOf(cursor string) (w window, isOne bool) {
	read, _ := fmt.Sscanf(cursor, "window %d %d %s", &w.newest, &w.upper, &w.after)
	return w, read >= 2
}

// searching is how far a search among too many jobs has come: how many of how many ids
// were looked at. False when it has come to its end.
func (s *JobList) searching() (done, all int64, goesOn bool) {
	w, goesOn := windowOf(s.next)
	return w.newest - w.upper, w.newest, goesOn && s.recent
}

// looked is what was found when jobs were looked for by their ids.
type looked struct {
	ids   map[int64]bool // that were looked for
	found map[int64]*jobq.Job
}

// Wants are the page, what has become of the rows on the screen, how many jobs
// match, and the job under the cursor.
func (s *JobList) Wants() []data.Want {
	page := s.question()
	match := page.match
	wants := append(data.Wants(data.Queues), data.Want{Panel: data.Page, About: page, Ask: page.ask}, data.Want{
		Panel: data.Count, About: match,
		Ask: func(ctx context.Context, r data.Reader) (any, error) {
			return countJobs(ctx, r, match)
		},
	})
	if s.more {
		more := s.moreQuestion()
		wants = append(wants, data.Want{Panel: data.More, About: more, Ask: more.ask})
	}
	if ids := s.visibleIDs(); len(ids) > 0 {
		wants = append(wants, data.Want{Panel: data.Visible, Ask: func(ctx context.Context, r data.Reader) (any, error) { return look(ctx, r, ids) }})
	}
	if job := s.selected(); job != nil && job.State == jobq.StateAvailable && s.preview > 0 { // they may be why it waits
		wants = append(wants, data.Wants(data.Workers, data.Kinds)...)
	}
	if id := s.previewed(); id != 0 && s.preview > 0 {
		wants = append(wants, data.Want{Panel: data.Job, About: storyQuestion{id: id, asked: s.recorded}, Ask: func(ctx context.Context, r data.Reader) (any, error) {
			return loadStory(ctx, r, id)
		}})
	}
	return wants
}

// counted is how many jobs match, up to CountMax; then about is about how many, if that is known, and else 0.
type counted struct{ total, about int64 }

func countJobs(ctx context.Context, r data.Reader, match string) (c counted, err error) {
	chosen := jobq.Filter{Match: match}
	if c.total, err = r.Count(ctx, chosen, jobq.CountMax); err == nil && c.total >= jobq.CountMax {
		c.about, err = r.Estimate(ctx, chosen)
	}
	return c, err
}

func (s *JobList) visibleIDs() (ids []int64) {
	for i := s.offset; i < min(s.offset+s.visible, len(s.rows)); i++ {
		ids = append(ids, s.rows[i].ID)
	}
	return ids
}

// look looks for jobs by their ids.
func look(ctx context.Context, r data.Reader, ids []int64) (any, error) {
	texts := make([]string, len(ids))
	answer := looked{make(map[int64]bool, len(ids)), make(map[int64]*jobq.Job, len(ids))}
	for i, id := range ids {
		texts[i] = strconv.FormatInt(id, 10)
		answer.ids[id] = true
	}
	page, err := r.List(ctx, jobq.Filter{Match: "id:" + strings.Join(texts, ","), Limit: len(ids)})
	if err != nil {
		return nil, err
	}
	for _, job := range page.Jobs {
		answer.found[job.ID] = job
	}
	return answer, nil
}

// namesStates says whether a filter speaks of states itself.
func namesStates(match string) bool {
	query, err := filter.Parse(match)
	return err == nil && len(query.States()) < len(jobq.States())
}
