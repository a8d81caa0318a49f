// SPDX-License-Identifier: GPL-2.0

// Command manifests reads Kubernetes objects (YAML) from its input and fails for a field that
// Kubernetes does not have, or a value of the wrong type. It prints them as a list (JSON).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

func main() {
	objects := []any{}
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		document, err := documents.Read()
		if err == io.EOF {
			break
		}
		object, err := decode(document, err)
		if err != nil {
			fmt.Fprintln(os.Stderr, "manifests:", err)
			os.Exit(1)
		}
		objects = append(objects, object)
	}
	json.NewEncoder(os.Stdout).Encode(objects)
}

func decode(document []byte, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	var kind struct{ Kind string }
	if err := strict.Unmarshal(document, &kind); err != nil {
		return nil, err
	}
	var object any
	switch kind.Kind {
	case "ConfigMap":
		object = &core.ConfigMap{}
	case "DaemonSet":
		object = &apps.DaemonSet{}
	default:
		return nil, fmt.Errorf("an object of the unknown kind %q", kind.Kind)
	}
	return object, strict.UnmarshalStrict(document, object)
}
