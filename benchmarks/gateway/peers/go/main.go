// A gateway on net/http/httputil.ReverseProxy, in two shapes:
//
//	proxy -shape tuned   what a careful Go program does: one transport with enough idle connections, of the body only
//	                     the model is decoded, the original bytes go on
//	proxy -shape kubeai  shaped like the proxy of KubeAI, of which no module can be had: the whole body is decoded and
//	                     encoded again, the default transport keeps two idle connections a host, a few lines are logged
//	                     for each request. A stand-in, not KubeAI itself.
//
// Both check the API key, choose the endpoint with the fewest requests in flight, and do nothing else.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
)

type endpoint struct {
	url      *url.URL
	inFlight atomic.Int64
}

type gateway struct {
	key       string
	kubeai    bool
	transport http.RoundTripper
	models    map[string][]*endpoint
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message}})
}

// read returns the model that a request names, and the body to send on.
func (g *gateway) read(r *http.Request) (model string, body []byte, err error) {
	if g.kubeai {
		var document map[string]any
		if err = json.NewDecoder(r.Body).Decode(&document); err != nil {
			return
		}
		model, _ = document["model"].(string)
		body, err = json.Marshal(document)
		return
	}
	if r.ContentLength > 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	} else {
		body, err = io.ReadAll(r.Body)
	}
	if err != nil {
		return
	}
	var document struct {
		Model string `json:"model"`
	}
	err = json.Unmarshal(body, &document)
	return document.Model, body, err
}

func least(endpoints []*endpoint) *endpoint {
	best := endpoints[0]
	for _, candidate := range endpoints[1:] {
		if candidate.inFlight.Load() < best.inFlight.Load() {
			best = candidate
		}
	}
	return best
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+g.key {
		refuse(w, http.StatusUnauthorized, "wrong key")
		return
	}
	if g.kubeai {
		log.Printf("url: %v", r.URL)
	}
	model, body, err := g.read(r)
	endpoints := g.models[model]
	if err != nil || model == "" {
		refuse(w, http.StatusBadRequest, "no model")
		return
	}
	if endpoints == nil {
		refuse(w, http.StatusNotFound, "unknown model")
		return
	}
	best := least(endpoints)
	best.inFlight.Add(1)
	defer best.inFlight.Add(-1)
	if g.kubeai {
		log.Printf("model: %v", model)
		log.Printf("proxying to %v", best.url.Host)
	}
	proxy := &httputil.ReverseProxy{Transport: g.transport, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(best.url) }}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	proxy.ServeHTTP(w, r)
}

func main() {
	listen := flag.String("listen", "", "address")
	shape := flag.String("shape", "tuned", "tuned or kubeai")
	key := flag.String("key", "", "API key")
	upstreams := flag.String("upstreams", "", "URLs of the engines, separated by commas")
	flag.Parse()
	g := &gateway{key: *key, kubeai: *shape == "kubeai", models: map[string][]*endpoint{}}
	if !g.kubeai {
		tuned := http.DefaultTransport.(*http.Transport).Clone()
		tuned.MaxIdleConns = 0
		tuned.MaxIdleConnsPerHost = 4096
		g.transport = tuned
	}
	for _, text := range strings.Split(*upstreams, ",") {
		target, err := url.Parse(text)
		if err != nil {
			log.Fatal(err)
		}
		g.models["bench"] = append(g.models["bench"], &endpoint{url: target})
	}
	log.Fatal(http.ListenAndServe(*listen, g))
}
