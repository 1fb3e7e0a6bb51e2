// Command record drives the terminal UI in tmux, as an operator would who finds
// failed jobs and requeues them, and writes what was on the screen as an
// animated SVG. `make recording` starts it on a database with real workers:
//
//	docs/capture.sh recording
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	cells, lines = 100, 30
	// sampleEvery is how often the screen is looked at.
	sampleEvery = 200 * time.Millisecond
	// patience is how long a step may take to show.
	patience = 20 * time.Second
	// bytesMax is what a README may ask its readers to load.
	bytesMax = 400_000
)

// step is what the operator does, what that must show, and for how long it is
// looked at.
type step struct {
	text string   // typed letter by letter
	keys []string // pressed, by their names in tmux
	want string
	hold time.Duration
}

var story = []step{
	{want: "● live", hold: 4 * time.Second},
	{keys: []string{"2"}, want: "to filter", hold: 2 * time.Second},
	{keys: []string{"/"}, want: "Filter", hold: time.Second / 2},
	{text: "state:failed queue:email", want: "queue:email_", hold: time.Second / 2},
	{keys: []string{"Enter"}, want: "last ended first", hold: 2 * time.Second},
	{keys: []string{"j"}, want: "SendInvoice", hold: time.Second / 2},
	{keys: []string{"r"}, want: "it is available", hold: 2 * time.Second},
	{keys: []string{"Enter"}, want: "COMPLETED", hold: 4 * time.Second},
	{keys: []string{"6"}, want: "requeue", hold: 2 * time.Second},
	{keys: []string{"4"}, want: "Janitor", hold: 2 * time.Second},
	{keys: []string{"1"}, want: "─ Activity", hold: 4 * time.Second},
}

func main() {
	binary := flag.String("jobq", "jobq", "the command to record")
	out := flag.String("out", "tui.svg", "the file to write")
	flag.Parse()
	if err := run(*binary, *out); err != nil {
		log.Fatal(err)
	}
}

func run(binary, out string) error {
	folder, err := os.MkdirTemp("", "jobq-record")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	t := terminal(filepath.Join(folder, "tmux"))
	if _, err := t.tmux("-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(cells), "-y", strconv.Itoa(lines),
		"env", "TERM=screen-256color", "LC_ALL=C.UTF-8", "USER=ana", binary, "tui", "--database-url", os.Getenv("DATABASE_URL"), "--context", "staging"); err != nil {
		return err
	}
	defer func() { _, _ = t.tmux("kill-server") }() // it may have ended with the UI
	if err := t.await("● live"); err != nil {
		return err
	}
	frames, err := t.record(story)
	if err != nil {
		return err
	}
	image := render(frames, cells, lines)
	if len(image) > bytesMax {
		return fmt.Errorf("the recording has %d bytes, more than %d: shorten the story", len(image), bytesMax)
	}
	fmt.Printf("wrote %s: %d frames, %d bytes\n", out, len(frames), len(image))
	return os.WriteFile(out, image, 0o644) // #nosec G306 -- a document
}

// terminal is a tmux server, by its socket.
type terminal string

func (t terminal) tmux(args ...string) (string, error) {
	out, err := exec.Command("tmux", append([]string{"-S", string(t)}, args...)...).CombinedOutput() // #nosec G204 -- constant but for the socket
	if err != nil {
		return "", fmt.Errorf("tmux %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

func (t terminal) await(text string) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		screen, err := t.tmux("capture-pane", "-p")
		if err != nil {
			return err
		}
		if strings.Contains(screen, text) {
			return nil
		}
	}
	return fmt.Errorf("no %q on the screen", text)
}

// record plays the steps, and looks at the screen meanwhile.
func (t terminal) record(steps []step) ([]frame, error) {
	played := make(chan error, 1)
	go func() { played <- t.play(steps) }()
	var frames []frame
	began := time.Now()
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		screen, err := t.tmux("capture-pane", "-p", "-e")
		if err != nil {
			return nil, err
		}
		if len(frames) == 0 || frames[len(frames)-1].screen != screen {
			frames = append(frames, frame{at: time.Since(began), screen: screen})
		}
		select {
		case err := <-played:
			frames = append(frames, frame{at: time.Since(began)}) // the end
			return frames, err
		case <-ticker.C:
		}
	}
}

func (t terminal) play(steps []step) error {
	for _, s := range steps {
		for _, letter := range s.text {
			if _, err := t.tmux("send-keys", "-l", string(letter)); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
		if len(s.keys) > 0 {
			if _, err := t.tmux(append([]string{"send-keys"}, s.keys...)...); err != nil {
				return err
			}
		}
		if err := t.await(s.want); err != nil {
			return err
		}
		time.Sleep(s.hold)
	}
	return nil
}
