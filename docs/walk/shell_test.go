package walk

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// patience is when a command that has not ended is hung.
const patience = 2 * time.Minute

// visit is one page with what its commands share.
type visit struct {
	*testing.T
	page    page
	used    map[int]bool // the page's rules that were needed
	pool    *pgxpool.Pool
	root    string // of the repository
	folder  string // the working directory
	env     []string
	where   string
	running []*program
}

func newVisit(t *testing.T, binaries string, page page) *visit {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	v := &visit{T: t, page: page, used: map[int]bool{}, root: root, folder: t.TempDir()}
	// The server of "jobq dev" runs as another user, who has to come into the folder.
	require.NoError(t, os.Chmod(filepath.Dir(v.folder), 0o755))
	url := ""
	if page.ownServer {
		url = pgtest.OwnServer(t).URL("postgres")
		require.NoError(t, pgtest.Migrate(t.Context(), url, "jobq"))
	} else {
		url = pgtest.URL(t)
	}
	v.pool = pgtest.Connect(t, url)
	for file, content := range map[string]string{"roles.sql": readPage(t, "sql/roles.sql"), "jobq.rules.yaml": readPage(t, "deploy/prometheus/jobq.rules.yaml"), "args.json": `{"id": 7}`} {
		require.NoError(t, os.WriteFile(filepath.Join(v.folder, file), []byte(content), 0o600))
	}
	v.env = []string{
		"PATH=" + binaries + ":" + os.Getenv("PATH"), "HOME=" + v.folder, "XDG_STATE_HOME=" + v.folder, "XDG_CONFIG_HOME=" + v.folder,
		"DATABASE_URL=" + url, "EDITOR=true", "LANG=C.UTF-8", "TERM=xterm-256color",
	}
	if folder := os.Getenv("JOBQ_PG_BIN"); folder != "" {
		v.env = append(v.env, "JOBQ_PG_BIN="+folder)
	}
	if page.before != "" {
		v.run(page.before, 0)
	}
	return v
}

// rule is the page's rule for a line, or nil.
func (v *visit) rule(line string) *rule {
	for i, r := range v.page.rules {
		if strings.HasPrefix(strings.TrimSpace(line), r.line) {
			v.used[i] = true
			return &v.page.rules[i]
		}
	}
	for i, r := range everywhere {
		if strings.HasPrefix(strings.TrimSpace(line), r.line) {
			return &everywhere[i]
		}
	}
	return nil
}

// prepare makes what the line needs.
func (v *visit) prepare(r *rule) {
	v.Helper()
	if r.first != "" {
		v.run(r.first, 0)
	}
}

// shell runs the commands of a block, one after the other.
func (v *visit) shell(text string) {
	v.Helper()
	for _, command := range v.commands(text) {
		command = regexp.MustCompile(`^(\$ |[*]/10 \* \* \* \* +)`).ReplaceAllString(command, "") // a prompt; a line of a crontab
		r := v.rule(command)
		if r == nil {
			r = &rule{}
		}
		if r.excused != "" {
			continue
		}
		all := v.page.replace(command) + "\n" + r.first + "\n" + r.instead
		if usesJQ.MatchString(all) && v.lacks("jq", "jq --version", "apt-get install jq") ||
			usesLess.MatchString(all) && v.lacks("less", "less --version", "apt-get install less") ||
			usesClient.MatchString(all) && v.lacks("shell", "pg_dump --version", "apt-get install postgresql-client") ||
			strings.HasPrefix(command, "make ") && v.lacks("make", "make --version", "apt-get install make") {
			continue
		}
		v.interrupt(r)
		v.prepare(r)
		command = v.page.replace(command)
		if r.instead != "" {
			command = r.instead
		}
		switch {
		case strings.HasPrefix(command, "export "):
			v.export(command)
		case strings.HasPrefix(command, "make "):
			v.run("make -n -C "+quoted(v.root)+strings.TrimPrefix(command, "make"), 0) // only whether there is such a target: CI runs those that it needs
		case r.until != "":
			v.start(command, r)
		case r.screen != "":
			v.terminal(command, r.screen)
		default:
			v.run(command, r.exit)
		}
	}
}

// usesJQ and usesLess find the programs jq and less in a command, and usesClient those of PostgreSQL's clients.
var (
	usesJQ     = regexp.MustCompile(`\bjq\b`)
	usesLess   = regexp.MustCompile(`\| less\b`)
	usesClient = regexp.MustCompile(`\b(psql|pg_dump|pg_restore)\b`)
)

// lacks says whether this machine lacks a program that a command checks for.
func (v *visit) lacks(name, check, install string) bool {
	v.Helper()
	if v.command(v.Context(), check).Run() == nil {
		return false
	}
	pgtest.Missing(v, name, install)
	return true
}

// commands cuts a block into commands: a line, and those that continue it.
func (v *visit) commands(text string) (commands []string) {
	v.Helper()
	command := ""
	for line := range strings.Lines(text) {
		command += line
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			command = strings.TrimSuffix(command, line)
			continue
		}
		complete := exec.Command("bash", "-n", "-c", command).Run() == nil
		if complete && !strings.HasSuffix(trimmed, `\`) {
			commands, command = append(commands, strings.TrimSpace(command)), ""
		}
	}
	require.Empty(v, command, "no whole command")
	return commands
}

// run runs a command to its end, with the exit code that it has to have.
func (v *visit) run(command string, exit int) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), patience)
	defer cancel()
	shell := v.command(ctx, command)
	var out bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &out
	_ = shell.Run() // ProcessState has how it ended
	require.NotNil(v, shell.ProcessState, command)
	require.Equal(v, exit, shell.ProcessState.ExitCode(), "%s: %s\n%s", v.where, command, out.String())
}

func (v *visit) command(ctx context.Context, command string) *exec.Cmd {
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
	shell.Dir, shell.Env = v.folder, v.env
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	return shell
}

// export keeps a variable for the commands that follow.
func (v *visit) export(command string) {
	v.Helper()
	name, _, _ := strings.Cut(strings.TrimPrefix(command, "export "), "=")
	out, err := v.command(v.Context(), command+` && printf %s "$`+name+`"`).Output()
	require.NoError(v, err, command)
	v.env = append(v.env, name+"="+string(out))
}

// program is one that runs until it is stopped.
type program struct {
	*exec.Cmd
	command string
	stays   bool // to the end of the page, and not only of the block
	mu      sync.Mutex
	text    bytes.Buffer // guarded by mu
}

func (p *program) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

// saying is what a program has said by the time that it is printed.
type saying struct{ *program }

func (s saying) String() string { return s.said() }

func (p *program) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// start starts a command that runs until it is stopped, and waits until it has said
// what it says when it works. What it has said is in the file said.txt.
func (v *visit) start(command string, r *rule) {
	v.Helper()
	p := &program{Cmd: v.command(context.WithoutCancel(v.Context()), "exec "+command), command: command, stays: r.stays}
	p.Stdout, p.Stderr = p, p
	require.NoError(v, p.Start())
	v.Cleanup(func() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) }) // where the test has failed
	v.running = append(v.running, p)
	require.Eventually(v, func() bool { return regexp.MustCompile(r.until).MatchString(p.said()) }, patience, 10*time.Millisecond, "%s: %s does not say %q; it says:\n%s", v.where, command, r.until, saying{p})
	require.NoError(v, os.WriteFile(filepath.Join(v.folder, "said.txt"), []byte(p.said()), 0o600))
}

// stop interrupts a program, as Ctrl-C does, and sees it end well.
func (v *visit) stop(p *program) {
	v.Helper()
	require.NoError(v, p.Process.Signal(syscall.SIGINT))
	require.NoError(v, p.Wait(), "%s: %s\n%s", v.where, p, p.said())
}

// interrupt stops what the reader stops before a line.
func (v *visit) interrupt(r *rule) {
	v.Helper()
	if r.stopped == "" {
		return
	}
	at := slices.IndexFunc(v.running, func(p *program) bool { return strings.HasPrefix(p.command, r.stopped) })
	require.NotEqual(v, -1, at, "%s: %q does not run", v.where, r.stopped)
	v.stop(v.running[at])
	v.running = slices.Delete(v.running, at, at+1)
}

// stopBlock stops what ran for one block.
func (v *visit) stopBlock() {
	v.Helper()
	var stay []*program
	for _, p := range v.running {
		if p.stays {
			stay = append(stay, p)
			continue
		}
		v.stop(p)
	}
	v.running = stay
}

// stopAll stops the last program first: it may need an earlier one, such as the database.
func (v *visit) stopAll() {
	v.Helper()
	for _, p := range slices.Backward(v.running) {
		v.stop(p)
	}
	v.running = nil
}

// terminal runs a command in a terminal, waits until its screen shows the text, and
// leaves with q, which takes more than one where a view was opened above the first.
func (v *visit) terminal(command, text string) {
	v.Helper()
	if v.lacks("tmux", "tmux -V", "apt-get install tmux") {
		return
	}
	v.run(fmt.Sprintf(`tmux -S %[1]s/tmux -f /dev/null new-session -d -x 120 -y 40 %[2]s
		trap 'tmux -S %[1]s/tmux kill-server 2>&- || true' EXIT
		until tmux -S %[1]s/tmux capture-pane -p | grep -q '%[3]s'; do sleep 0.1; done
		while tmux -S %[1]s/tmux has-session 2>&-; do tmux -S %[1]s/tmux send-keys q 2>&- || true; sleep 0.2; done`, v.folder, quoted(command), text), 0)
}

// quoted is one word of a shell.
func quoted(text string) string { return `'` + strings.ReplaceAll(text, `'`, `'\''`) + `'` }
