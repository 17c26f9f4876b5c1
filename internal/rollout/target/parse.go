// SPDX-License-Identifier: Apache-2.0

package target

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kruisectl/kruisectl/internal/editdistance"
)

// Verb is a command as far as its targets are concerned.
type Verb struct {
	// Command is the command without the program, e.g. "rollout pause".
	Command string
	// Kinds it supports, in the order they are listed to users.
	Kinds []*Kind
	// Mutates: an ambiguous name is an error instead of a note.
	Mutates bool
	// Elsewhere says where a kind that Kinds lacks is served, by GroupKind.Kind and
	// without the program name; may be nil.
	Elsewhere func(*Kind) string
	// Because says why a kind that Kinds lacks cannot be served, as a clause; may be nil.
	Because func(*Kind) string
}

// Name is one target as typed: the kinds that its type may mean, and its name.
type Name struct {
	Kinds []*Kind
	Name  string
	// Typed is the text as the user wrote it.
	Typed string
	// Namespace it is in, when the name came with one; "" means that of the command line.
	Namespace string
}

// InputError is a target that is wrong on any cluster: exit code 2.
type InputError struct {
	Err error
	// Next is what to type instead, without the program name; may be empty.
	Next string
}

func (e *InputError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *InputError) Unwrap() error { return e.Err }

// Parse reads the arguments of verb: TYPE NAME…, TYPE/NAME…, or a mix of TYPE/NAME. It
// asks no server. Every error is an *InputError.
func Parse(verb Verb, args []string) ([]Name, error) {
	if len(args) == 0 {
		return nil, &InputError{
			Err:  errors.New("name an object: TYPE/NAME or TYPE NAME"),
			Next: verb.Command + " " + example(verb) + "/NAME",
		}
	}
	if !strings.Contains(args[0], "/") {
		return parsePair(verb, args)
	}
	var names []Name
	for _, arg := range args {
		typ, name, ok := strings.Cut(arg, "/")
		if !ok {
			return nil, bareWord(verb, arg)
		}
		n, err := parseOne(verb, typ, name, arg)
		if err != nil {
			return nil, err
		}
		names = append(names, n)
	}
	return names, nil
}

// ParseType reads the one word that stands with a selector: which of verb's kinds it means.
func ParseType(verb Verb, args []string) ([]*Kind, error) {
	if len(args) != 1 || strings.Contains(args[0], "/") {
		return nil, &InputError{
			Err:  errors.New("name one type and no object: -l, --all and -A choose the objects"),
			Next: verb.Command + " " + example(verb) + " --all",
		}
	}
	n, err := parseOne(verb, args[0], "NAME", args[0]+"/NAME")
	if err != nil {
		return nil, err
	}
	var fit []*Kind
	for _, k := range n.Kinds {
		if slices.Contains(verb.Kinds, k) {
			fit = append(fit, k)
		}
	}
	return fit, nil
}

func parsePair(verb Verb, args []string) ([]Name, error) {
	if len(Lookup(args[0])) == 0 && len(args) == 1 {
		return nil, bareWord(verb, args[0])
	}
	if len(args) == 1 {
		return nil, &InputError{
			Err:  fmt.Errorf("%q names a type; the name of the object is missing", args[0]),
			Next: verb.Command + " " + args[0] + "/NAME",
		}
	}
	var names []Name
	for _, name := range args[1:] {
		if strings.Contains(name, "/") {
			return nil, &InputError{Err: fmt.Errorf("use either TYPE NAME or TYPE/NAME, not both: %q after %q", name, args[0])}
		}
		n, err := parseOne(verb, args[0], name, args[0]+"/"+name)
		if err != nil {
			return nil, err
		}
		names = append(names, n)
	}
	return names, nil
}

func parseOne(verb Verb, typ, name, typed string) (Name, error) {
	if name == "" || strings.Contains(name, "/") {
		return Name{}, &InputError{Err: fmt.Errorf("%q is not TYPE/NAME", typed), Next: verb.Command + " " + example(verb) + "/NAME"}
	}
	found := Lookup(typ)
	if len(found) == 0 {
		return Name{}, &InputError{
			Err:  fmt.Errorf("%q is not a type that %q knows; it works on %s", typ, verb.Command, List(verb.Kinds)),
			Next: verb.Command + " " + nearest(verb, typ) + "/" + name,
		}
	}
	var fit []*Kind
	for _, k := range found {
		if slices.Contains(verb.Kinds, k) {
			fit = append(fit, k)
		}
	}
	if len(fit) == 0 {
		k := found[0]
		for _, other := range found {
			if verb.Elsewhere != nil && verb.Elsewhere(other) != "" {
				k = other
			}
		}
		return Name{}, WrongKind(verb, k, name)
	}
	return Name{Kinds: found, Name: name, Typed: typed}, nil
}

// WrongKind is the error for a kind that verb does not support.
func WrongKind(verb Verb, k *Kind, name string) error {
	e := &InputError{Err: fmt.Errorf("%q does not work on %s; it works on %s", verb.Command, k.Spelling(), List(verb.Kinds))}
	if verb.Because != nil {
		if why := verb.Because(k); why != "" {
			e.Err = fmt.Errorf("%q does not work on %s: %s", verb.Command, k.Spelling(), why)
		}
	}
	if verb.Elsewhere != nil {
		if next := verb.Elsewhere(k); next != "" {
			e.Next = next + " " + nextWord(k, next) + "/" + name
		}
	}
	return e
}

// nearest is the word for one of verb's kinds that is closest to what was typed, if any is
// close at all.
func nearest(verb Verb, typed string) string {
	best, distance := example(verb), 3
	for _, k := range verb.Kinds {
		for _, word := range append([]string{k.Word(), k.Singular, k.Plural}, k.Aliases...) {
			if d := editdistance.Of(strings.ToLower(typed), word); d < distance && d < len(word) {
				best, distance = k.Word(), d
			}
		}
	}
	return best
}

// nextWord is how the program of a hint calls k: kubectl knows only resources.
func nextWord(k *Kind, command string) string {
	if strings.HasPrefix(command, "kubectl ") {
		if len(Lookup(k.Singular)) > 1 {
			return k.Spelling()
		}
		return k.Singular
	}
	return k.Word()
}

func bareWord(verb Verb, word string) error {
	if len(Lookup(word)) > 0 {
		return &InputError{Err: fmt.Errorf("%q names a type; the name of the object is missing", word), Next: verb.Command + " " + word + "/NAME"}
	}
	ex := example(verb)
	return &InputError{
		Err:  fmt.Errorf("%q lacks a type: write TYPE/NAME or TYPE NAME", word),
		Next: fmt.Sprintf("%s %s/%s\n%s %s %s", verb.Command, ex, word, verb.Command, ex, word),
	}
}

func example(verb Verb) string {
	if len(verb.Kinds) == 0 {
		return "TYPE"
	}
	return verb.Kinds[0].Word()
}

// List prints kinds for a sentence: "cloneset and pod".
func List(ks []*Kind) string {
	var words []string
	for _, k := range ks {
		words = append(words, k.Word())
	}
	switch len(words) {
	case 0:
		return "nothing"
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
