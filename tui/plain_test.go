package tui

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// heard is what plain mode has written, and can be waited for.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (h *heard) Write(text []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(text)
}

// patience ends a test that hangs; nothing that works takes nearly as long.
const patience = 5 * time.Minute

// next waits until the text was written since the last time, and takes it.
func (h *heard) next(t *testing.T, want string) (all string) {
	t.Helper()
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		all = h.text.String()
		return strings.Contains(all, want)
	}, patience, time.Millisecond, "no %q was told; but:\n%s", want, &h.text)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Reset()
	return all
}

// serial is a fake that is asked several things at once.
type serial struct {
	*fake
	mu sync.Mutex
}

func (s *serial) List(ctx context.Context, filter jobq.Filter) (*jobq.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fake.List(ctx, filter)
}

func (s *serial) Get(ctx context.Context, id int64) (*jobq.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fake.Get(ctx, id)
}

func (s *serial) Act(ctx context.Context, action jobq.Action, targets ...operator.Target) (*operator.Acted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fake.Act(ctx, action, targets...)
}

// In plain mode rows have numbers, keys and names are commands, questions are
// answered by a line, and nothing that is written moves a cursor.
func TestPlain(t *testing.T) {
	t.Parallel()
	f := &serial{fake: newFake()}
	var calls atomic.Int64 // the clock goes on with each look at it, so that each toast has a time of its own
	e := &env{
		now: func() time.Time { return noon.Add(time.Duration(calls.Add(1)) * time.Microsecond) }, ascii: true, send: &sender{}, plain: true,
		connect: func(context.Context, string) (*link, error) {
			return &link{Context: Context{Name: "prod", Production: true, Confirm: true}, reader: f, writer: f, host: "db-1", schema: "jobq"}, nil
		},
	}
	e.use(&link{Context: Context{Name: "prod"}})
	h, stop, lines := &heard{}, make(chan struct{}), make(chan string)
	p := newPlain(newModel(e), h, stop)
	ended := make(chan error)
	go func() { ended <- p.run(lines) }()
	h.next(t, "1 of 3: email, 64 running, 10k+ available")
	lines <- "3"
	h.next(t, "3 of 3: default, 104 running, 12 available, 2,711 scheduled, 6 retrying, 4 failed, selected")
	lines <- "9"
	h.next(t, "no row 9 here")
	lines <- "jobs"
	all := h.next(t, "20 of 100")
	require.Contains(t, all, "1 of 100: 48213911 email SendInvoice failed, attempt 5 of 5, ")
	require.Contains(t, all, "smtp 421 4.7.0 rate limited, selected")
	lines <- "/state:failed kind:Send*"
	require.Contains(t, h.next(t, "250 in all, last ended first"), "failed jobs that match kind:Send* of prod, production")
	lines <- "/foo:bar"
	h.next(t, `no field "foo"`)
	lines <- "3"
	h.next(t, "3 of 100: 48213897")
	lines <- "r"
	h.next(t, "y yes any other key: no")
	lines <- "n"
	h.next(t, "nothing was done")
	require.Empty(t, f.written)
	lines <- "requeue"
	h.next(t, "y yes any other key: no")
	lines <- "y"
	h.next(t, "requeue job 48213897: it is available")
	lines <- "esc"
	lines <- "open"
	h.next(t, "attempt 5")
	lines <- "help"
	all = h.next(t, "quit, or q")
	require.NotContains(t, all, "suspend")
	require.NotContains(t, all, "\x1b")
	lines <- "workers"
	h.next(t, "2 of 2: ")
	lines <- "q"
	require.NoError(t, <-ended)
	close(stop)
	p.working.Wait()
	require.Len(t, f.written, 1)
}

// The end of the input is the end of plain mode, but not before each line has
// had its answer.
func TestPlainInput(t *testing.T) {
	t.Parallel()
	f := &serial{fake: newFake()}
	e := &env{now: time.Now, send: &sender{}, plain: true, connect: func(context.Context, string) (*link, error) {
		return &link{reader: f, writer: f}, nil
	}}
	e.use(&link{})
	h, stop, lines := &heard{}, make(chan struct{}), make(chan string)
	p := newPlain(newModel(e), h, stop)
	go read(context.Background(), strings.NewReader("jobs\n2\nopen\n"), lines)
	require.NoError(t, p.run(lines))
	h.next(t, "Job 48213904 email SendReceipt failed")
	close(stop)
	p.working.Wait()
}

// What is piped in means what it would mean if it were typed: an answer that
// comes at once after its question counts, once.
func TestPlainPipedAnswer(t *testing.T) {
	t.Parallel()
	f := &serial{fake: newFake()}
	e := &env{now: func() time.Time { return noon }, send: &sender{}, connect: func(context.Context, string) (*link, error) {
		return &link{reader: f, writer: f}, nil
	}}
	e.plain = true
	e.use(&link{})
	h, stop, lines := &heard{}, make(chan struct{}), make(chan string)
	p := newPlain(newModel(e), h, stop)
	go read(context.Background(), strings.NewReader("jobs\ndelete\ny\ndelete\nn\n"), lines)
	require.NoError(t, p.run(lines))
	close(stop)
	p.working.Wait()
	require.Equal(t, []string{"delete 48213911:failed/5"}, f.written, &h.text)
}

// startPlain runs plain mode on an environment with a connect, and takes lines
// until it is stopped.
func startPlain(t *testing.T, e *env) (h *heard, lines chan<- string) {
	t.Helper()
	e.now, e.ascii, e.send, e.plain = time.Now, true, &sender{}, true
	e.use(&link{Context: Context{Name: "here"}})
	h = &heard{}
	stop, typed, ended := make(chan struct{}), make(chan string), make(chan error, 1)
	p := newPlain(newModel(e), h, stop)
	go func() { ended <- p.run(typed) }()
	t.Cleanup(func() {
		close(stop)
		require.NoError(t, <-ended)
		p.working.Wait()
	})
	return h, typed
}

// On the way to another database nothing is heard, so that no line means the
// database before, and then the other one is told. Method: a way that takes as
// long as the test wants.
func TestPlainSwitch(t *testing.T) {
	t.Parallel()
	here, there, arrive := &serial{fake: newFake()}, &serial{fake: newFake()}, make(chan error)
	there.queues = []monitor.Queue{{Name: "elsewhere"}}
	h, lines := startPlain(t, &env{
		contexts: []Context{{Name: "here"}, {Name: "there"}},
		connect: func(_ context.Context, name string) (*link, error) {
			if name == "here" {
				return &link{Context: Context{Name: name}, reader: here, writer: here}, nil
			}
			select {
			case err := <-arrive:
				return &link{Context: Context{Name: name}, reader: there, writer: there}, err
			case <-t.Context().Done():
				return nil, t.Context().Err()
			}
		},
	})
	h.next(t, "Overview of here")
	for _, err := range []error{jobq.ErrUnavailable, nil} {
		lines <- "ctx there"
		h.next(t, "connecting to there")
		select {
		case lines <- "jobs":
			require.Fail(t, "a line was heard on the way")
		case <-time.After(50 * time.Millisecond):
		}
		arrive <- err
		if err != nil {
			require.NotContains(t, h.next(t, "Overview of here"), "there,")
		}
	}
	all := h.next(t, "elsewhere")
	require.Contains(t, all, "this is there")
	require.Contains(t, all, "Overview of there")
	require.NotContains(t, all, "Overview of here")
}

// The end of plain mode stops a bulk action after its batch; the end of the
// input alone does not.
func TestPlainStopsBulk(t *testing.T) {
	t.Parallel()
	f := &bulky{serial: &serial{fake: newFake()}, began: make(chan struct{}), end: make(chan struct{})}
	e := &env{now: time.Now, ascii: true, send: &sender{}, plain: true, connect: func(context.Context, string) (*link, error) {
		return &link{reader: f, writer: f}, nil
	}}
	e.use(&link{})
	for _, stopped := range []bool{true, false} {
		h, stop, lines, ended := &heard{}, make(chan struct{}), make(chan string), make(chan error)
		p := newPlain(newModel(e), h, stop)
		go func() { ended <- p.run(lines) }()
		h.next(t, "Overview")
		for _, step := range []struct{ line, told string }{{"jobs", "of 100"}, {"select-all", "all 250 that match are selected"}, {"requeue", "Type 250"}} {
			lines <- step.line
			h.next(t, step.told)
		}
		lines <- "250"
		<-f.began
		if stopped {
			close(stop)
		} else {
			close(lines)
			h.next(t, "0 of 250 done")
			f.end <- struct{}{}
		}
		require.NoError(t, <-ended)
		if !stopped {
			close(stop)
		}
		p.working.Wait()
	}
}

// bulky is a database whose actions by filter take until they are let end.
type bulky struct {
	*serial
	began, end chan struct{}
}

func (b *bulky) Bulk(ctx context.Context, _ operator.BulkParams) (operator.BulkProgress, error) {
	b.began <- struct{}{}
	select {
	case <-ctx.Done():
		return operator.BulkProgress{}, ctx.Err()
	case <-b.end:
		return operator.BulkProgress{}, nil
	}
}

// Nothing that comes from a job drives the terminal, whatever says it: a toast
// is not drawn, and so not cleaned by what draws.
func TestPlainCleans(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &plain{m: newBench(120, 35).Model, out: &out}
	p.m.say("{\"a\": \"\x07\x08\u0090\u009b31m\u202e\"}\n\x1b]0;evil\x07 told")
	p.asked = false
	p.tell()
	p.m.env.plain = true
	p.m.restyle()
	p.lines([]string{p.m.paint.Title.Render("bold") + "   " + p.m.paint.Error.Render("red\x9b2J")})
	require.Equal(t, "{\"a\": \"␇␈��31m�\"} ␛]0;evil␇ told\nbold red�2J\n", out.String())
}

// A line is a whole answer: the number of a choice, however long, or the text
// in place of what was there. Keys that are numbers of rows are not offered.
func TestPlainAnswers(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := newBench(120, 35)
	b.env.plain = true
	b.restyle()
	for i := range 12 {
		b.env.contexts = append(b.env.contexts, Context{Name: fmt.Sprintf("db-%d", i+1)})
	}
	p := &plain{m: b.Model, out: &out}
	var gone []string
	b.env.connect = func(_ context.Context, name string) (*link, error) {
		gone = append(gone, name)
		return nil, jobq.ErrUnavailable
	}
	say := func(line string) string {
		b.do(p.take(line))
		b.do(b.poll())
		p.tell()
		defer out.Reset()
		return out.String()
	}
	require.Contains(t, say("contexts"), "12 db-12")
	require.Contains(t, say("13"), "no choice 13 here")
	require.Empty(t, gone)
	say("10")
	require.Equal(t, []string{"db-10"}, gone)

	say("jobs")
	say("/state:failed kind:Send*")
	require.Contains(t, say("filter"), "kind:Send*")
	say("kind:Other")
	require.Equal(t, "kind:Other", b.match())
	say("filter")
	require.Contains(t, say("foo:bar"), "no field")
	say("queue:email")
	require.Equal(t, "queue:email", b.match(), "what could not be meant is gone")
	say("select-all")
	say("requeue")
	b.fake.now = b.fake.now.Add(time.Second)
	say("25")
	require.Empty(t, b.fake.written)
	say("250")
	require.Equal(t, []string{"bulk requeue state:failed queue:email"}, b.fake.written)

	help := say("help")
	require.Contains(t, help, "\noverview: ")
	require.Contains(t, help, "\nquit, or q: ")
}
