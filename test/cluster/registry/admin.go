// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kruisectl/kruisectl/test/cluster/images"
)

// pair is the public and the private registry of a cluster.
type pair struct {
	open, closed *Registry
	base         images.Base
}

// put stores an image where its name belongs.
func (p pair) put(ref string, image v1.Image) error {
	if rest, ok := strings.CutPrefix(ref, images.PrivateHost+"/"); ok {
		return p.closed.Put(rest, image)
	}
	return p.open.Put(ref, image)
}

// admin is what tests control the registry with:
//
//	PUT    /test/rules/NAME              a Rule, as JSON, in force at once
//	GET    /test/rules                   all rules, with how many requests each has spoiled
//	DELETE /test/rules[/NAME]            one rule, or all
//	PUT    /test/images?ref=&layers=&bytes=   makes an image of that shape; answers with MadeImage
//	GET    /test/requests[?repository=]  downloads that were asked for, oldest first
//	PUT    /test/delay?blob=DURATION     what every download of a blob waits for first
//	*      /test/token                   where clients get tokens
func (p pair) admin() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /test/rules/{name}", p.setRule)
	mux.HandleFunc("GET /test/rules", func(w http.ResponseWriter, _ *http.Request) { answer(w, p.open.rules.snapshot()) })
	mux.HandleFunc("DELETE /test/rules", p.deleteRule)
	mux.HandleFunc("DELETE /test/rules/{name}", p.deleteRule)
	mux.HandleFunc("PUT /test/images", p.makeImage)
	mux.HandleFunc("GET /test/requests", func(w http.ResponseWriter, req *http.Request) {
		answer(w, p.open.requests.Of(req.URL.Query().Get("repository")))
	})
	mux.HandleFunc("PUT /test/delay", p.setDelay)
	mux.HandleFunc(tokenPath, exchange)
	return mux
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client is gone: nothing to tell it
}

func (p pair) setRule(w http.ResponseWriter, req *http.Request) {
	var rule Rule
	decoder := json.NewDecoder(req.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&rule)
	if err == nil {
		err = p.open.rules.Set(req.PathValue("name"), rule)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (p pair) deleteRule(w http.ResponseWriter, req *http.Request) {
	p.open.rules.Delete(req.PathValue("name"))
	w.WriteHeader(http.StatusNoContent)
}

func (p pair) setDelay(w http.ResponseWriter, req *http.Request) {
	d, err := time.ParseDuration(req.URL.Query().Get("blob"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.open.SetDelay(d)
	p.closed.SetDelay(d)
	w.WriteHeader(http.StatusNoContent)
}

// MadeImage is an image that was made on demand.
type MadeImage struct {
	Digest string   `json:"digest"`
	Layers []string `json:"layers"` // digests, the lowest first; the first one is the base of all test images
}

func (p pair) makeImage(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	made, err := p.make(q.Get("ref"), q.Get("layers"), q.Get("bytes"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, made)
}

func (p pair) make(ref, layers, bytes string) (MadeImage, error) {
	count, err := strconv.Atoi(layers)
	if err != nil {
		return MadeImage{}, fmt.Errorf("layers: %w", err)
	}
	size, err := strconv.Atoi(bytes)
	if err != nil {
		return MadeImage{}, fmt.Errorf("bytes: %w", err)
	}
	image, err := images.Sized(p.base, ref, count, size)
	if err != nil {
		return MadeImage{}, err
	}
	if err := p.put(ref, image); err != nil {
		return MadeImage{}, err
	}
	digest, err := image.Digest()
	if err != nil {
		return MadeImage{}, fmt.Errorf("computing the digest of %s: %w", ref, err)
	}
	made := MadeImage{Digest: digest.String()}
	all, err := image.Layers()
	if err != nil {
		return MadeImage{}, fmt.Errorf("listing the layers of %s: %w", ref, err)
	}
	for _, l := range all {
		d, err := l.Digest()
		if err != nil {
			return MadeImage{}, fmt.Errorf("computing the digest of a layer of %s: %w", ref, err)
		}
		made.Layers = append(made.Layers, d.String())
	}
	return made, nil
}
