package jobedit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// File is a document while an editor has it. It stays until it is removed, so
// that nothing is lost of what could not be done.
type File struct{ Path string }

// Create writes a document to a new file that only its owner can read.
func Create(id int64, content []byte) (*File, error) {
	file, err := os.CreateTemp("", fmt.Sprintf("jobq-%d-*.json", id))
	if err != nil {
		return nil, fmt.Errorf("file to edit: %w", err)
	}
	_, err = file.Write(content)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return &File{file.Name()}, err
}

// Command is the operator's editor on the file: $VISUAL, $EDITOR or vi. They may
// have arguments, as a shell reads them.
func (f *File) Command(ctx context.Context) *exec.Cmd {
	editor := "vi"
	for _, name := range []string{"EDITOR", "VISUAL"} { // the last one wins
		if value := os.Getenv(name); value != "" {
			editor = value
		}
	}
	return exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", f.Path) // #nosec G204 G702 -- the operator's own editor
}

// Read returns what the editor has left.
func (f *File) Read() ([]byte, error) { return os.ReadFile(f.Path) }

// Write replaces the content.
func (f *File) Write(content []byte) error { return os.WriteFile(f.Path, content, 0o600) }

// Remove deletes the file. What is left of it harms nobody.
func (f *File) Remove() { _ = os.Remove(f.Path) }
