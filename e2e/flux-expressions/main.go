// The recorder of crates/planner's health and readiness expressions: what Flux's own evaluator says of a table of expressions and objects,
// as JSON on standard output.
//
//	go run . health|ready > ../../crates/planner/tests/data/<the same>-expressions.json
//	go run . ignore > ../../crates/planner/tests/data/ignore-rules.json
//
// The modules are the newest that this version of Go builds; their folders `cel` and `jsondiff` are the same in v0.122.0 and v0.83.0.
package main

import (
	"bytes"
	"context"
	"os"

	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"github.com/fluxcd/pkg/ssa/jsondiff"
	gocel "github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

type object = map[string]any

func main() {
	cases := map[string]func() []object{"health": health, "ready": ready, "ignore": ignore}[os.Args[1]]()
	var out bytes.Buffer
	out.WriteString("[\n")
	for i, one := range cases {
		line, err := json.Marshal(one)
		if err != nil {
			panic(err)
		}
		out.Write(line)
		if i < len(cases)-1 {
			out.WriteString(",")
		}
		out.WriteString("\n")
	}
	out.WriteString("]\n")
	os.Stdout.Write(out.Bytes())
}

// As client-go decodes: whole numbers are int64.
func decode(text string) object {
	var found object
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		panic(err)
	}
	return found
}

var objects = []string{
	`{}`,
	`{"data":{"current":true,"inProgress":false,"failed":false}}`,
	`{"data":{"current":true,"inProgress":true,"failed":true}}`,
	`{"data":{"current":true,"inProgress":false,"failed":true}}`,
	`{"data":{"current":false,"inProgress":false,"failed":false}}`,
	`{"data":{"current":"yes"}}`,
	`{"metadata":{"generation":2},"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]}}`,
	`{"metadata":{"generation":2},"status":{"observedGeneration":"1","conditions":[{"type":"Ready","status":"True"}]}}`,
	`{"metadata":{"generation":2},"status":{"observedGeneration":1.5,"conditions":[{"type":"Ready","status":"True"}]}}`,
	`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"True"}]}}`,
	`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"False"}]}}`,
	`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[]}}`,
	`{"metadata":{"generation":2,"deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Stalled","status":"True"}]}}`,
	`{"spec":{"replicas":3,"ratio":0.5,"text":"abc","nothing":null,"list":[1,2,3]},"status":{"ready":3}}`,
	`{"spec":{"replicas":3},"status":{"ready":2}}`,
	`{"status":null}`,
	`{"type":"Opaque","data":{"a":"YQ=="}}`,
}

// inProgress, failed, current.
var checks = [][3]string{
	{"", "", "true"},
	{"", "", "false"},
	{"", "", ""},
	{"", "", "data."},
	{"data.", "", "true"},
	{"", "data.", "true"},
	{"data.inProgress", "data.failed", "data.current"},
	{"", "", "data.current"},
	{"", "data.failed", "data.current"},
	{"data.inProgresss", "data.failed", "data.current"},
	{"", "", "data.current == true"},
	{
		"has(status.observedGeneration) && metadata.generation != status.observedGeneration",
		"status.conditions.filter(e, e.type == 'Ready').all(e, e.status == 'False')",
		"status.conditions.filter(e, e.type == 'Ready').all(e, e.status == 'True')",
	},
	{"", "", "status.conditions.exists(e, e.type == 'Ready' && e.status == 'True')"},
	{"!has(status.conditions)", "", "status.conditions.exists(e, e.type == 'Ready')"},
	{"", "", "has(status) && has(status.ready)"},
	{"", "", "status.?ready.orValue(0) == spec.replicas"},
	{"", "", "status.ready == spec.replicas"},
	{"", "", "status.ready >= 2 && spec.replicas == 3.0"},
	{"", "", "spec.replicas == 3u"},
	{"", "", "spec.ratio < 1"},
	{"", "", "spec.text.startsWith('a') && spec.text.upperAscii() == 'ABC'"},
	{"", "", "spec.nothing == null"},
	{"", "", "spec.list.map(x, x * 2) == [2, 4, 6]"},
	{"", "", "sets.contains(spec.list, [1, 2])"},
	{"", "", "spec.list[5] == 1"},
	{"", "", "1 / 0 == 1"},
	{"", "", "true || 1 / 0 == 1"},
	{"", "", "'yes'"},
	{"", "", "status"},
	{"", "", "unknown"},
	{"", "", "unknown.field || true"},
	{"", "", "noSuchFunction(status)"},
	{"", "", "self.status.ready == 3"},
	{"", "", "dyn('a') == 1"},
	{"", "", "'a' == 1"},
	{"", "", "int(spec.text) == 1"},
	{"", "", "spec.text.matches('^a.c$')"},
	{"", "", "duration('1h') > duration('30m')"},
	{"", "", "timestamp(metadata.deletionTimestamp) < timestamp('2026-01-02T00:00:00Z')"},
	{"", "", "type(spec.replicas) == int"},
	{"", "", "type == 'Opaque'"},
	{"", "", "base64.decode(data.a) == b'a'"},
	{"", "", "[1, 'a'].size() == 2"},
	{"", "", "{'a': 1}.a == 1"},
	{"", "", "has(spec)"},
}

func health() []object {
	var cases []object
	for _, check := range checks {
		one := object{"inProgress": check[0], "failed": check[1], "current": check[2]}
		evaluator, err := cel.NewStatusEvaluator(&kustomize.HealthCheckExpressions{
			InProgress: check[0], Failed: check[1], Current: check[2],
		})
		if err != nil {
			one["invalid"] = err.Error()
			cases = append(cases, one)
			continue
		}
		var answers []object
		for _, text := range objects {
			result, err := evaluator.Evaluate(context.Background(), &unstructured.Unstructured{Object: decode(text)})
			answer := object{"object": decode(text)}
			if err != nil {
				answer["error"] = err.Error()
			} else {
				answer["status"] = string(result.Status)
			}
			answers = append(answers, answer)
		}
		one["answers"] = answers
		cases = append(cases, one)
	}
	return cases
}

const self = `{"kind":"Kustomization","metadata":{"name":"app","namespace":"team","labels":{"wave":"2"}},
	"spec":{"interval":"1m","prune":true,"suspend":false},"status":{"observedGeneration":1,"lastAppliedRevision":"main@sha1:a"}}`

var dependencies = []string{
	`{"metadata":{"name":"db","namespace":"team","labels":{"wave":"1"},"generation":2},"spec":{"prune":true},
	"status":{"observedGeneration":2,"lastAppliedRevision":"main@sha1:a","conditions":[{"type":"Ready","status":"True"}]}}`,
	`{"metadata":{"name":"db","namespace":"team","generation":2},"spec":{"prune":true},
	"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"False"}]}}`,
	`{"metadata":{"name":"db","namespace":"team"},"spec":{"prune":true},"status":{}}`,
	`{"metadata":{"name":"db","namespace":"team"},"spec":{"prune":true}}`,
}

var readiness = []string{
	"true",
	"false",
	"dep.status.conditions.filter(e, e.type == 'Ready').all(e, e.status == 'True') && dep.metadata.generation == dep.status.observedGeneration",
	"dep.status.conditions.exists(e, e.type == 'Ready' && e.status == 'True')",
	"has(dep.status.conditions)",
	"self.status.lastAppliedRevision == dep.status.lastAppliedRevision",
	"dep.status.?lastAppliedRevision.orValue('') == self.status.lastAppliedRevision",
	"int(self.metadata.labels.wave) > int(dep.metadata.labels.wave)",
	"dep.metadata.labels['wave'] == '1'",
	"dep.spec.prune",
	"dep.spec.prune == true",
	"'a'",
	"dep",
	"dep.status",
	"other.status == 1",
	"dep.",
	"status.ready",
	"1 == 'a'",
	"dep.status.conditions.size() > 0",
	"size(dep.metadata.name) + 1 == 3",
	"dep.metadata.name + self.metadata.name == 'dbapp'",
	"dep.metadata.generation > 1",
	"dep.metadata.generation == 2.0",
	"1 + 'a' == 2",
	"[1, 'a'].size() == 2",
	"base64.encode(b'a') == 'YQ=='",
	"has(self.metadata.labels.wave)",
	"dep.exists(key, key == 'status')",
}

func ready() []object {
	var cases []object
	for _, text := range readiness {
		one := object{"expression": text}
		expression, err := cel.NewExpression(text,
			cel.WithCompile(), cel.WithOutputType(gocel.BoolType), cel.WithStructVariables("self", "dep"))
		if err != nil {
			one["invalid"] = err.Error()
			cases = append(cases, one)
			continue
		}
		var answers []object
		for _, dependency := range dependencies {
			said, err := expression.EvaluateBoolean(context.Background(),
				object{"self": decode(self), "dep": decode(dependency)})
			answer := object{"self": decode(self), "dep": decode(dependency)}
			if err != nil {
				answer["error"] = err.Error()
			} else {
				answer["ready"] = said
			}
			answers = append(answers, answer)
		}
		one["answers"] = answers
		cases = append(cases, one)
	}
	return cases
}

var ruled = []string{
	`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"team","labels":{"app":"web","tier":"2"},"annotations":{"a/b":"c"}},
	"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"y"},{"name":"c","image":"z"}]}}}}`,
	`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web-settings","namespace":"other"},"data":{"a/b":"1","c~d":"2","":"3","0":"4"}}`,
	`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"web"},"spec":{"rules":[]}}`,
}

var rules = []struct {
	selector *jsondiff.Selector
	paths    []string
}{
	{nil, []string{"/spec/replicas"}},
	{nil, []string{"/spec/none", "/spec/replicas"}},
	{nil, []string{"/spec/template/spec/containers/0"}},
	{nil, []string{"/spec/template/spec/containers/0", "/spec/template/spec/containers/0"}},
	{nil, []string{"/spec/template/spec/containers/0/image", "/spec/template/spec/containers/2/image"}},
	{nil, []string{"/spec/template/spec/containers/-1"}},
	{nil, []string{"/spec/template/spec/containers/5"}},
	{nil, []string{"/spec/template/spec/containers/-"}},
	{nil, []string{"/spec/template/spec/containers/x"}},
	{nil, []string{"/metadata/annotations/a~1b"}},
	{nil, []string{"/data/a~1b", "/data/c~0d"}},
	{nil, []string{"/data/"}},
	{nil, []string{"/data/0"}},
	{nil, []string{"/metadata/labels"}},
	{nil, []string{"/spec/replicas/deeper"}},
	{nil, []string{"/none/of/these"}},
	{&jsondiff.Selector{}, []string{"/spec"}},
	{&jsondiff.Selector{Kind: "Deployment"}, []string{"/spec"}},
	{&jsondiff.Selector{Kind: "Deploy"}, []string{"/spec"}},
	{&jsondiff.Selector{Kind: "Deploy.*|Ingress"}, []string{"/spec"}},
	{&jsondiff.Selector{Kind: "deployment"}, []string{"/spec"}},
	{&jsondiff.Selector{Kind: "(?i)deployment"}, []string{"/spec"}},
	{&jsondiff.Selector{Group: "apps"}, []string{"/spec"}},
	{&jsondiff.Selector{Group: "networking.k8s.io"}, []string{"/spec"}},
	{&jsondiff.Selector{Group: ".*"}, []string{"/spec"}},
	{&jsondiff.Selector{Version: "v1"}, []string{"/spec"}},
	{&jsondiff.Selector{Name: "web"}, []string{"/spec"}},
	{&jsondiff.Selector{Name: "web.+"}, []string{"/data"}},
	{&jsondiff.Selector{Name: "^web$"}, []string{"/spec"}},
	{&jsondiff.Selector{Namespace: "team", Name: "web"}, []string{"/spec"}},
	{&jsondiff.Selector{Namespace: "te"}, []string{"/spec"}},
	{&jsondiff.Selector{LabelSelector: "app=web"}, []string{"/spec"}},
	{&jsondiff.Selector{LabelSelector: "app==web,tier in (1, 2)"}, []string{"/spec"}},
	{&jsondiff.Selector{LabelSelector: "app!=web"}, []string{"/spec", "/data"}},
	{&jsondiff.Selector{LabelSelector: "!app"}, []string{"/spec", "/data"}},
	{&jsondiff.Selector{LabelSelector: "tier notin (2)"}, []string{"/spec", "/data"}},
	{&jsondiff.Selector{LabelSelector: "tier > 1"}, []string{"/spec"}},
	{&jsondiff.Selector{LabelSelector: "tier < 1"}, []string{"/spec"}},
	{&jsondiff.Selector{LabelSelector: "app"}, []string{"/spec"}},
	{&jsondiff.Selector{LabelSelector: "app in ("}, []string{"/spec"}},
	{&jsondiff.Selector{LabelSelector: "a b"}, []string{"/spec"}},
	{&jsondiff.Selector{AnnotationSelector: "a/b=c"}, []string{"/spec"}},
	{&jsondiff.Selector{Name: "we(b"}, []string{"/spec"}},
	{&jsondiff.Selector{Name: "(?=web)"}, []string{"/spec"}},
	{&jsondiff.Selector{Kind: "["}, []string{"/spec"}},
}

func ignore() []object {
	var cases []object
	for _, rule := range rules {
		one := object{"paths": rule.paths}
		if s := rule.selector; s != nil {
			target := object{}
			for key, value := range map[string]string{
				"group": s.Group, "version": s.Version, "kind": s.Kind, "name": s.Name, "namespace": s.Namespace,
				"labelSelector": s.LabelSelector, "annotationSelector": s.AnnotationSelector,
			} {
				if value != "" {
					target[key] = value
				}
			}
			one["target"] = target
		}
		matcher, err := jsondiff.NewSelectorRegex(rule.selector)
		if err != nil {
			one["invalid"] = err.Error()
			cases = append(cases, one)
			continue
		}
		var answers []object
		for _, text := range ruled {
			stripped := &unstructured.Unstructured{Object: decode(text)}
			answer := object{"object": decode(text)}
			if matcher.MatchUnstructured(stripped) {
				if err := jsondiff.ApplyPatchToUnstructured(stripped, jsondiff.GenerateRemovePatch(rule.paths...)); err != nil {
					answer["error"] = err.Error()
				} else {
					answer["stripped"] = stripped.Object
				}
			}
			answers = append(answers, answer)
		}
		one["answers"] = answers
		cases = append(cases, one)
	}
	return cases
}
