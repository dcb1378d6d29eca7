// Lint and render a chart with Helm's own packages, and decode what it renders as Kubernetes does.
//
//	chart FOLDER VALUES.yaml...
//
// Prints JSON: the messages of lint, and for each file of values what was rendered or an error.
// Each manifest is decoded strictly into the types of its API: an unknown field is an error.
package main

import (
	"encoding/json"
	"os"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const release, namespace = "edge", "kafka"

type manifest struct {
	Template string         `json:"template"`
	Object   map[string]any `json:"object"`
	Error    string         `json:"error"`
}

type rendered struct {
	Values    string     `json:"values"`
	Error     string     `json:"error"`
	Lint      []string   `json:"lint"`
	Notes     string     `json:"notes"`
	Manifests []manifest `json:"manifests"`
}

func main() {
	results := []rendered{}
	for _, path := range os.Args[2:] {
		result := rendered{Values: path}
		if err := result.render(os.Args[1], path); err != nil {
			result.Error = err.Error()
		}
		results = append(results, result)
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		os.Exit(1)
	}
}

func (r *rendered) render(folder string, path string) error {
	values, err := chartutil.ReadValuesFile(path)
	if err != nil {
		return err
	}
	for _, message := range lint.All(folder, values, namespace, true).Messages {
		r.Lint = append(r.Lint, message.Error())
	}
	chart, err := loader.Load(folder)
	if err != nil {
		return err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return err
	}
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			r.Notes = text
			continue
		}
		for _, document := range releaseutil.SplitManifests(text) {
			r.Manifests = append(r.Manifests, decoded(name, document))
		}
	}
	sort.Slice(r.Manifests, func(i, j int) bool {
		return r.Manifests[i].Template < r.Manifests[j].Template
	})
	return nil
}

func decoded(name string, document string) manifest {
	one := manifest{Template: name}
	if err := yaml.Unmarshal([]byte(document), &one.Object); err != nil {
		one.Error = err.Error()
		return one
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
	if _, _, err := strict.UniversalDeserializer().Decode([]byte(document), nil, nil); err != nil {
		one.Error = err.Error()
	}
	return one
}
