package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	filesMax      = 300
	imagesMax     = 60
	fileBytesMax  = 8 << 20
	imageBytesMin = 2 << 10 // smaller ones are icons
	visitsMax     = 50_000
)

// foundFiles are files of this machine to work on.
type foundFiles struct {
	folders       []string // where some were found
	files, images []string
}

// findFiles looks for files below the folder, or below folders where there
// are some on most machines.
func findFiles(ctx context.Context, folder string) (foundFiles, error) {
	folders := []string{folder}
	if folder == "" {
		home, _ := os.UserHomeDir() // "" is left out below
		folders = []string{
			home + "/Pictures", "/usr/share/pixmaps", "/usr/share/doc", "/usr/share", "/usr/local/share", "/System/Library/Desktop Pictures",
		}
		if root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output(); err == nil { // has pictures, for Go's own tests
			folders = append([]string{filepath.Join(strings.TrimSpace(string(root)), "src", "image")}, folders...)
		}
	}
	var found foundFiles
	for _, folder := range folders {
		before := len(found.files) + len(found.images)
		if err := found.walk(folder); err != nil {
			return found, err
		}
		if len(found.files)+len(found.images) > before {
			found.folders = append(found.folders, folder)
		}
	}
	if len(found.files)+len(found.images) < 20 {
		return found, fmt.Errorf("only %d files found below %s: name a folder with more, with --folder",
			len(found.files)+len(found.images), strings.Join(folders, ", "))
	}
	return found, nil
}

func (f *foundFiles) walk(folder string) error {
	visits := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		visits++
		if visits > visitsMax || (len(f.files) >= filesMax && len(f.images) >= imagesMax) {
			return fs.SkipAll
		}
		if err != nil || !entry.Type().IsRegular() || strings.ContainsAny(path, `"\`+"\n") {
			return nil // what cannot be read is not for us
		}
		info, err := entry.Info()
		if err != nil || info.Size() == 0 || info.Size() > fileBytesMax {
			return nil
		}
		switch strings.ToLower(filepath.Ext(path)) {
		case ".png", ".jpg", ".jpeg", ".gif":
			if len(f.images) < imagesMax && info.Size() >= imageBytesMin {
				f.images = append(f.images, path)
			}
		default:
			if len(f.files) < filesMax {
				f.files = append(f.files, path)
			}
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
