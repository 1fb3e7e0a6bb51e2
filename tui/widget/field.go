package widget

import (
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
)

// fieldMax bounds what can be typed into a field, in characters.
const fieldMax = 1000

// Field is a line of text to type, with the keys that text fields have: left,
// right, home, end, by words, and paste. Its cursor is the terminal's own, which
// screen readers and magnifiers follow.
type Field struct{ input textinput.Model }

// NewField makes a field with a text in it, and the cursor at its end.
func NewField(text string) Field {
	input := textinput.New()
	input.Prompt = ""
	input.CharLimit = fieldMax
	input.KeyMap.Paste.SetEnabled(false) // the terminal pastes, and not a program on this machine
	input.SetVirtualCursor(false)
	input.SetStyles(textinput.Styles{})
	input.SetValue(Clean(text))
	input.CursorEnd()
	input.Focus()
	return Field{input}
}

// SetWidth sets how many cells of the text can be seen.
func (f *Field) SetWidth(cells int) { f.input.SetWidth(max(cells-1, 1)) } // one is the cursor's

// Text is what was typed.
func (f *Field) Text() string { return f.input.Value() }

// SetText replaces the text; the cursor goes to its end.
func (f *Field) SetText(text string) {
	f.input.SetValue(Clean(text))
	f.input.CursorEnd()
}

// Update takes a key or a paste in. What cannot be shown safely does not get in.
func (f *Field) Update(msg tea.Msg) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		msg.Text = Clean(msg.Text)
		f.input, _ = f.input.Update(msg)
	case tea.PasteMsg:
		f.input, _ = f.input.Update(tea.PasteMsg{Content: Clean(msg.Content)})
	}
}

// View is the visible part of the text.
func (f *Field) View() string { return f.input.View() }

// Cursor is the column of the cursor in the view.
func (f *Field) Cursor() int {
	before := Width(string([]rune(f.Text())[:f.input.Position()]))
	return min(before, f.input.Width())
}
