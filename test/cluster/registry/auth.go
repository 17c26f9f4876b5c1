// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// tokenPath is where credentials are exchanged for tokens, on the address that asked for one.
const tokenPath = "/test/token"

// admit says whether a request has the credentials, and otherwise tells the client how to get in.
func (a Auth) admit(w http.ResponseWriter, req *http.Request, t target) bool {
	switch a.Scheme {
	case Basic:
		if user, password, ok := req.BasicAuth(); ok && user == a.User && password == a.Password {
			return true
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
	case Bearer:
		if req.Header.Get("Authorization") == "Bearer "+token(a.User, a.Password) {
			return true
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s%s",service="%s",scope="repository:%s:pull"`, req.Host, tokenPath, req.Host, t.Repository))
	}
	fail(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	return false
}

// token is what anybody with these credentials gets. Whether they are right shows where the token is used: the
// exchange does not know for which repository it is meant.
func token(user, password string) string {
	mac := hmac.New(sha256.New, []byte(user))
	_, _ = mac.Write([]byte(password)) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// exchange gives out tokens. Clients send credentials as basic authentication, or in a form; nobody's token opens nothing.
func exchange(w http.ResponseWriter, req *http.Request) {
	user, password, ok := req.BasicAuth()
	if !ok {
		user, password = req.FormValue("username"), req.FormValue("password")
	}
	t := token(user, password)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"token": t, "access_token": t, "expires_in": 300}) // the client is gone: nothing to tell it
}

// fail answers with an error as the registry protocol words it.
func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if code == "" {
		code = strings.ToUpper(strings.ReplaceAll(http.StatusText(status), " ", "_"))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}}) // as above
}
