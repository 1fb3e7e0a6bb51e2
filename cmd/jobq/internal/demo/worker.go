package demo

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/gif" // decodes
	_ "image/jpeg"
	"image/png"
	"os"
	"path/filepath"

	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// checksumKind is run by a program: a shell that takes the path out of its
// args and hands the file to cksum, which every Unix has.
const checksumKind = "demo.checksum"

var checksumCommand = []string{"/bin/sh", "-c", `read -r args; path=${args#*'"path": "'}; cksum "${path%%'"'*}"`}

// Thumbnail is run by a Go handler: it makes a small picture of a large one.
type Thumbnail struct {
	Path   string `json:"path"`
	Folder string `json:"folder"` // where the small one goes
	Width  int    `json:"width"`
}

// Kind names the handler.
func (Thumbnail) Kind() string { return "demo.thumbnail" }

// Handle gives a worker the handlers of the demo.
func Handle(w *worker.Worker) error {
	return errors.Join(
		programs.New(w).HandleCommand(checksumKind, programs.Command{Args: checksumCommand}, nil),
		worker.Handle(w, makeThumbnail, nil),
	)
}

func makeThumbnail(_ context.Context, job *worker.Job[Thumbnail]) error {
	file, err := os.Open(job.Args.Path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	large, _, err := image.Decode(file)
	if err != nil {
		// An image that Go cannot decode will not get better: no thumbnail.
		return job.SetResult(map[string]any{"skipped": err.Error()})
	}
	job.Progress(50, "scale", filepath.Base(job.Args.Path))
	small := shrink(large, job.Args.Width)

	// Written under another name first: a run that is killed halfway leaves no
	// half picture where the next run, or anybody, expects a whole one.
	target := filepath.Join(job.Args.Folder, fmt.Sprintf("%d.png", job.ID()))
	partial := fmt.Sprintf("%s.%d", target, job.LeaseToken())
	out, err := os.Create(partial) // #nosec G304 -- the demo's own folder
	if err != nil {
		return err
	}
	if err := errors.Join(png.Encode(out, small), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(partial, target); err != nil {
		return err
	}
	return job.SetResult(map[string]any{"thumbnail": target, "width": small.Bounds().Dx(), "height": small.Bounds().Dy()})
}

// shrink averages the pixels that fall into each one of the smaller image.
func shrink(large image.Image, width int) image.Image {
	bounds := large.Bounds()
	width = min(width, bounds.Dx())
	height := max(1, bounds.Dy()*width/bounds.Dx())
	small := image.NewRGBA64(image.Rect(0, 0, width, height))
	for y := range height {
		top, bottom := bounds.Min.Y+y*bounds.Dy()/height, bounds.Min.Y+(y+1)*bounds.Dy()/height
		for x := range width {
			left, right := bounds.Min.X+x*bounds.Dx()/width, bounds.Min.X+(x+1)*bounds.Dx()/width
			small.SetRGBA64(x, y, average(large, image.Rect(left, top, right, bottom)))
		}
	}
	return small
}

func average(picture image.Image, area image.Rectangle) color.RGBA64 {
	var red, green, blue, alpha, count uint64
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			r, g, b, a := picture.At(x, y).RGBA()
			red, green, blue, alpha, count = red+uint64(r), green+uint64(g), blue+uint64(b), alpha+uint64(a), count+1
		}
	}
	count = max(count, 1)
	mean := func(sum uint64) uint16 { return uint16(sum / count) } // #nosec G115 -- a mean of 16-bit values
	return color.RGBA64{R: mean(red), G: mean(green), B: mean(blue), A: mean(alpha)}
}
