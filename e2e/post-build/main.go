// The recorder of crates/kustomize/tests/data/substitution.json: what kustomize-controller makes of an object when it substitutes variables in it, as
// JSON on standard output. Reading objects and writing them is kustomize's, the substitution is Flux's own package.
//
//	go run . > ../../crates/kustomize/tests/data/substitution.json
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/fluxcd/pkg/kustomize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/provider"
	"sigs.k8s.io/kustomize/api/resmap"
)

type object = map[string]any

// substitute builds as kustomize-controller's `build` does, for one object.
func substitute(text string, variables map[string]string, always bool) (string, error) {
	resources, err := resmap.NewFactory(provider.NewDefaultDepProvider().GetResourceFactory()).NewResMapFromBytes([]byte(text))
	if err != nil {
		return "", err
	}
	values := object{}
	for name, value := range variables {
		values[name] = value
	}
	flux := unstructured.Unstructured{Object: object{"spec": object{"postBuild": object{"substitute": values}}}}
	for _, resource := range resources.Resources() {
		substituted, err := kustomize.SubstituteVariables(context.Background(), nil, flux, resource,
			kustomize.SubstituteWithDryRun(true), kustomize.SubstituteWithStrict(true), kustomize.SubstituteWithAlways(always))
		if err != nil {
			return "", err
		}
		if substituted != nil {
			if _, err := resources.Replace(resource); err != nil {
				return "", err
			}
		}
	}
	made, err := resources.AsYaml()
	return string(made), err
}

func main() {
	variables := map[string]string{
		"name": "web", "n": "3", "float": "1.50", "exp": "1e3", "big": "9007199254740993", "octal": "0755", "hex": "0x1F", "under": "1_000", "yes": "yes", "on": "on", "null": "null", "tilde": "~", "true": "true",
		"empty": "", "space": " a ", "colon": "a: b", "hash": "a #b", "dash": "- a", "quote": `"`, "single": "'", "both": `"a'`, "brace": "{a: b}", "list": "[1, 2]", "anchor": "&a b", "alias": "*a", "tag": "!!str 3",
		"percent": "%x", "at": "@x", "tick": "`x", "star": "*", "bang": "!x", "question": "? a", "pipe": "|", "fold": ">", "newline": "a\nb", "return": "a\r  injected: yes", "nel": "a\u0085  injected: yes", "ls": "a\u2028  injected: yes", "tab": "a\tb",
		"time": "2026-01-01", "sexagesimal": "12:30:45", "inf": ".inf", "nan": ".nan", "merge": "<<", "uni": "é日😀", "dollar": "${n} $$", "back": `a\nb`, "kind": "Secret", "ns": "other", "doc": "---", "long": strings.Repeat("word ", 40), "int64": "-9223372036854775808", "uint64": "18446744073709551615", "zero": "0", "minus": "-0", "plus": "+1", "dot": ".5", "comma": "a, b: c", "docreturn": "a\r---\rkind: X",
	}
	metadata := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"
	texts := []string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${name}\n  namespace: ${ns}\n", "apiVersion: v1\nkind: ${kind}\nmetadata:\n  name: a\n", "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: ${name}\nspec:\n  replicas: ${n}\n",
		metadata + "data:\n  a: plain\n", metadata + "data:\n  a: $$\n", metadata + "data:\n  a: $${n}\n", metadata + "data:\n  a: $n\n", metadata + "data:\n  a: ${nope}\n", metadata + "data:\n  a: ${nope:=x}\n", metadata + "data:\n  a: ${n\n", metadata + "data:\n  ${name}: x\n", metadata + "data:\n  ${n}: x\n", metadata + "data:\n  ${true}: x\n",
		metadata + "data:\n  a: |\n    one ${n}\n    two ${space}\n", metadata + "data:\n  a: |\n    one ${newline}\n", metadata + "data:\n  a: |\n    x ${return}\n", metadata + "data:\n  a: \"x\\ty ${n}\"\n", metadata + "data:\n  a: \"é ${uni}\"\n", metadata + "data:\n  a: \"\\u2028 ${n}\"\n", metadata + "data:\n  a: \"\\u2028 ${quote}\"\n", metadata + "data:\n  a: \"\\u2028 ${back}\"\n",
		metadata + "list:\n- ${n}\n- x${n}\n- ${list}\n- [\"${n}\"]\n", metadata + "data:\n  big: 9007199254740993\n  a: ${n}\n", metadata + "data:\n  float: 1.10\n  exp: 1e3\n  a: ${n}\n", metadata + "data:\n  big: 123456789012345678901234567890\n  a: $$\n", metadata + "data:\n  int: 12345678\n  a: $$\n", metadata + "data:\n  a: 2026-01-01\n  b: $$\n",
		metadata + "  annotations:\n    kustomize.toolkit.fluxcd.io/substitute: disabled\ndata:\n  a: ${n}\n", metadata + "  labels:\n    kustomize.toolkit.fluxcd.io/substitute: disabled\ndata:\n  a: ${n}\n", metadata + "  labels:\n    kustomize.toolkit.fluxcd.io/substitute: Disabled\ndata:\n  a: ${n}\n", metadata + "  annotations:\n    kustomize.toolkit.fluxcd.io/substitute: enabled\ndata:\n  a: ${n}\n", metadata + "  annotations:\n    a: ${n}\n",
		metadata + "data:\n  a: ${nope:=some default that is so long that the text which is written of it is longer than one line of eighty characters, ${name}}\n", metadata + "data:\n  a: ${nope:=a: b}\n", metadata + "data:\n  a: x # ${n}\n", metadata + "data:\n  a: 'x # ${n}'\n", metadata + "data:\n  a: ${name}-${n}\n", metadata + "data:\n  a: \"${n} \"\n", metadata + "data:\n  a: '${nope:=}'\n", metadata + "data: ${nope:=}\n", metadata + "data: ${nope:={}}\n", metadata + "data:\n  a: ${nope:=\"{}\"}\n",
		metadata + "data:\n  a: ${name}\n  b: ${doc}\n", metadata + "data:\n  a: |\n    ${doc}\n    x\n",
		"apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\nstringData:\n  a: p${n}w\n", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\ndata:\n  a: aGk=\n",
	}
	names := make([]string, 0, len(variables))
	for name := range variables {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, value := range []string{"${%s}", "\"${%s}\"", "x ${%s} y", "\"1${%s}\"", "\": ${%s}\"", "|\n    x\n    ${%s}\n    z"} {
			texts = append(texts, metadata+"data:\n  a: "+fmt.Sprintf(value, name)+"\n")
		}
	}
	cases := []object{{"variables": variables}}
	for _, text := range texts {
		one := object{"text": text}
		if made, err := substitute(text, variables, false); err != nil {
			one["error"] = err.Error()
		} else {
			one["output"] = made
		}
		cases = append(cases, one)
	}
	for _, text := range []string{metadata + "data:\n  a: ${nope:=x}\n"} {
		for _, always := range []bool{false, true} {
			made, err := substitute(text, nil, always)
			if err != nil {
				panic(err)
			}
			cases = append(cases, object{"text": text, "always": always, "output": made})
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	out.WriteString("[\n")
	for i, one := range cases {
		if err := encoder.Encode(one); err != nil {
			panic(err)
		}
		if i < len(cases)-1 {
			out.Truncate(out.Len() - 1)
			out.WriteString(",\n")
		}
	}
	out.WriteString("]\n")
	os.Stdout.Write(out.Bytes())
}
