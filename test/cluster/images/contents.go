// SPDX-License-Identifier: Apache-2.0

package images

import (
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// holdScript waits to be told to end. As process 1 a program without a handler would not even see SIGTERM, and every
// container would take its whole grace period to stop. Waiting also reaps the orphans of a shared process namespace.
const holdScript = `trap 'exit 0' TERM INT QUIT
while :; do sleep 86400 & wait $!; done`

// webScript serves the documents of its only argument on port 80 until told to end.
const webScript = `trap 'kill $child; exit 0' TERM INT QUIT
httpd -f -p "${PORT:-80}" -h "$1" & child=$!
wait $child`

// agnhostScript does what tests ask most of the image of this name.
const agnhostScript = `case "${1:-pause}" in
netexec) port=8080
  for a in "$@"; do case "$a" in --http-port=*) port="${a#--http-port=}";; esac; done
  mkdir -p /tmp/www && hostname > /tmp/www/hostname && echo ok > /tmp/www/index.html
  PORT=$port exec web /tmp/www ;;
serve-hostname) mkdir -p /tmp/www && hostname > /tmp/www/index.html && PORT=9376 exec web /tmp/www ;;
*) exec hold ;;
esac`

// probeScript fails for twelve seconds after its first call, then succeeds with one message for fifteen seconds, then
// with another: a probe whose result and message change over time.
const probeScript = `now=$(date +%s)
[ -f /tmp/first ] || echo "$now" > /tmp/first
age=$((now - $(cat /tmp/first)))
if [ $age -lt 12 ]; then echo starting; exit 1; fi
if [ $age -lt 27 ]; then echo data; else echo gate; fi`

func script(body string) File { return File{Data: []byte("#!/bin/sh\n" + body + "\n")} }

// contents are the files that the image adds to the base, and its configuration.
func (e Entry) contents() (Tree, v1.Config) {
	t := Tree{"etc/image-version": {Data: []byte(e.content + "\n"), Mode: 0o644}}
	repository, _, _ := strings.Cut(e.Ref[strings.LastIndex(e.Ref, "/")+1:], ":")
	if e.kind != pause {
		t["etc/image-name"] = File{Data: []byte(repository + "\n"), Mode: 0o644}
	}
	var config v1.Config
	switch e.kind {
	case web:
		root := "usr/share/nginx/html"
		if repository == "httpd" {
			root = "usr/local/apache2/htdocs"
		}
		t[path.Join(root, "index.html")] = File{Data: []byte("<h1>Welcome to " + repository + "!</h1>\n"), Mode: 0o644}
		t[path.Join(root, "version")] = File{Data: []byte(e.content + "\n"), Mode: 0o644}
		t["bin/web"] = script(webScript)
		serve := script("exec web /" + root)
		t["bin/nginx"], t["bin/httpd-foreground"] = serve, serve // arguments such as -g "daemon off;" mean nothing here
		t["docker-entrypoint.sh"] = script(`exec "$@"`)
		config.Entrypoint, config.Cmd = []string{"/docker-entrypoint.sh"}, []string{"nginx"}
	case shell:
		config.Cmd = []string{"sh"}
	case hold:
		t["bin/redis-server"] = script("exec hold")
		config.Cmd = []string{"hold"}
	case pause:
		config.Entrypoint = []string{"/bin/hold"}
	case agnost:
		t["bin/web"] = script(webScript)
		t["agnhost"] = script(agnhostScript)
		config.Entrypoint, config.Cmd = []string{"/agnhost"}, []string{"pause"}
	case minecraft:
		t["app/probe.sh"] = script(probeScript)
		config.WorkingDir, config.Cmd = "/app", []string{"hold"}
	case exit:
		config.Cmd = []string{"true"}
	}
	return t, config
}
