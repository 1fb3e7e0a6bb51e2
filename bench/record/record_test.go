package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Lines are split where their look changes, and the look goes on until it is
// changed.
func TestParseLine(t *testing.T) {
	t.Parallel()
	var now style
	require.Equal(t, []span{
		{0, "a ", style{}},
		{2, "é", style{bold: true, front: palette[1]}},
		{3, "b", style{reverse: true}},
		{4, "c", style{reverse: true, front: "#0000ff", back: "#080808"}},
	}, parseLine("a \x1b[1;31mé\x1b[0;7mb\x1b[38;5;21m\x1b[48;2;8;8;8mc", &now))
	require.Equal(t, []span{{0, "d", style{reverse: true, back: "#080808"}}}, parseLine("\x1b[39md", &now))
	require.Equal(t, []span{{0, "e", style{}}}, parseLine("\x1b[me", &now))
}

// The picture is XML, shows each frame when it was seen, and draws a line that
// several frames have once.
func TestRender(t *testing.T) {
	t.Parallel()
	image := string(render([]frame{
		{0, "\x1b[1mhead\x1b[0m\n <one> & two\n"},
		{time.Second, "\x1b[1mhead\x1b[0m\n three  four\n"},
		{4 * time.Second, ""},
	}, 20, 2))
	decoder := xml.NewDecoder(strings.NewReader(image))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, image)
	}
	require.Equal(t, 1, strings.Count(image, ">head</text>"))
	require.Equal(t, 2, strings.Count(image, `<use href="#l0" y="0"/>`))
	require.Contains(t, image, `<text x="8" y="13" textLength="88">&lt;one&gt; &amp; two</text>`)
	require.Contains(t, image, `<text x="64" y="13" textLength="32">four</text>`)
	require.Contains(t, image, "0.000%{transform:translateX(0px)}25.000%{transform:translateX(-180px)}")
	require.Contains(t, image, "animation:play 4.0s step-end infinite")
}
