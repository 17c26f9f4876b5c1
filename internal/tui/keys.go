// SPDX-License-Identifier: Apache-2.0

package tui

import "github.com/charmbracelet/bubbles/key"

// keyMap holds every key of the UI. Footers and the help screen are made from it, so that
// what is shown is what works.
type keyMap struct {
	up, down, top, bottom     key.Binding
	why, whySet               key.Binding
	pause, promote, full      key.Binding
	abort, undo, restart      key.Binding
	back, quit, kill, help    key.Binding
	yes, no, toggle, activate key.Binding

	// Of the screen of an image job.
	node, failedNames, retryNodes, cancelJob key.Binding
	onlyFailed, onlyRunning, onlyDone        key.Binding
	onlyQueued                               key.Binding
}

func bind(help string, keys ...string) key.Binding {
	shown := keys[0]
	return key.NewBinding(key.WithKeys(keys...), key.WithHelp(shown, help))
}

func newKeyMap() keyMap {
	return keyMap{
		up: bind("up", "k", "up"), down: bind("down", "j", "down"), top: bind("first", "g", "home"), bottom: bind("last", "G", "end"),
		why: bind("why pod", "w", "enter"), whySet: bind("why workload", "W"),
		pause: bind("pause", "p"), promote: bind("promote", "P"), full: bind("full", "F"),
		abort: bind("abort", "a"), undo: bind("undo", "u"), restart: bind("restart", "r"),
		back: bind("back", "esc"), quit: bind("quit", "q"), kill: bind("quit at once", "ctrl+c"), help: bind("help", "?"),
		yes: bind("yes", "y"), no: bind("no", "n"), toggle: bind("other button", "tab", "left", "right", "shift+tab"), activate: bind("choose", "enter"),
		node: bind("node", "enter"), failedNames: bind("failed nodes", "y"), retryNodes: bind("retry failed", "R"), cancelJob: bind("cancel", "D"),
		onlyFailed: bind("only failed", "f"), onlyRunning: bind("only pulling", "g"), onlyDone: bind("only done", "d"), onlyQueued: bind("only queued", "z"),
	}
}

// filterKeys maps the groups of nodes to the keys that show one alone.
func (k keyMap) filterKeys() []struct {
	group string
	key   key.Binding
} {
	return []struct {
		group string
		key   key.Binding
	}{{groupFailed, k.onlyFailed}, {groupRunning, k.onlyRunning}, {groupDone, k.onlyDone}, {groupQueued, k.onlyQueued}}
}

// actionKeys maps the name of an action to its key. Pause and resume share one.
func (k keyMap) actionKeys() []struct {
	name string
	key  key.Binding
} {
	return []struct {
		name string
		key  key.Binding
	}{
		{"pause", k.pause}, {"resume", k.pause}, {"promote", k.promote}, {"full", k.full},
		{"abort", k.abort}, {"undo", k.undo}, {"restart", k.restart},
	}
}
