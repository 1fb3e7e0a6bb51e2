package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// manifestFields are the fields that manifests in deploy/kubernetes may have, as the references of
// Kubernetes 1.34, KEDA 2 and the Prometheus operator have them; * stands for any name. kubectl refuses others.
const manifestFields = `
metadata: &metadata {name: str, labels: &labels {"*": str}, annotations: *labels}
pods: &pods
  metadata: *metadata
  spec:
    restartPolicy: str
    terminationGracePeriodSeconds: int
    automountServiceAccountToken: bool
    securityContext: {runAsNonRoot: bool, runAsUser: int, runAsGroup: int, seccompProfile: {type: str}}
    containers:
      - name: str
        image: str
        args: [str]
        ports: [{name: str, containerPort: int}]
        env: [{name: str, valueFrom: {secretKeyRef: {name: str, key: str}}}]
        readinessProbe: &probe {exec: {command: [str]}, httpGet: {path: str, port: str}, periodSeconds: int, timeoutSeconds: int}
        livenessProbe: *probe
        volumeMounts: [{name: str, mountPath: str}]
        securityContext: {allowPrivilegeEscalation: bool, readOnlyRootFilesystem: bool, capabilities: {drop: [str]}}
        resources: {requests: &amounts {cpu: str, memory: str}, limits: *amounts}
    volumes: [{name: str, emptyDir: {}}]
kinds:
  batch/v1 Job: {apiVersion: str, kind: str, metadata: *metadata, spec: {backoffLimit: int, template: *pods}}
  apps/v1 Deployment:
    apiVersion: str
    kind: str
    metadata: *metadata
    spec:
      replicas: int
      selector: &selector {matchLabels: *labels}
      strategy: {rollingUpdate: {maxSurge: int, maxUnavailable: int}}
      template: *pods
  keda.sh/v1alpha1 TriggerAuthentication: {apiVersion: str, kind: str, metadata: *metadata, spec: {secretTargetRef: [{parameter: str, name: str, key: str}]}}
  keda.sh/v1alpha1 ScaledObject:
    apiVersion: str
    kind: str
    metadata: *metadata
    spec:
      scaleTargetRef: {name: str}
      minReplicaCount: int
      maxReplicaCount: int
      pollingInterval: int
      cooldownPeriod: int
      triggers: [{type: str, authenticationRef: {name: str}, metadata: {targetQueryValue: str, query: str}}]
  monitoring.coreos.com/v1 PodMonitor:
    {apiVersion: str, kind: str, metadata: *metadata, spec: {selector: *selector, podMetricsEndpoints: [{port: str, interval: str}]}}
`

// manifestProblems says what of the manifests in a file is not a known field, or no value for it.
func manifestProblems(t *testing.T, content []byte) (problems []string) {
	t.Helper()
	var known struct{ Kinds map[string]any }
	require.NoError(t, yaml.Unmarshal([]byte(manifestFields), &known))
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return problems
		}
		require.NoError(t, err)
		var of struct {
			Version string `yaml:"apiVersion"`
			Kind    string
		}
		require.NoError(t, node.Decode(&of))
		fields, ok := known.Kinds[of.Version+" "+of.Kind]
		if !ok {
			problems = append(problems, fmt.Sprintf("%s %s is not known here", of.Version, of.Kind))
			continue
		}
		problems = append(problems, nodeProblems(of.Kind, node.Content[0], fields)...)
	}
}

// nodeProblems compares a node with what is known of it: the name of its type, a list with what its elements
// are, or what its fields are.
func nodeProblems(path string, node *yaml.Node, known any) (problems []string) {
	problem := func(is string) []string { return []string{fmt.Sprintf("line %d: %s %s", node.Line, path, is)} }
	switch known := known.(type) {
	case string:
		if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!"+known {
			return problem("must be of the type " + known)
		}
	case []any:
		if node.Kind != yaml.SequenceNode {
			return problem("must be a list")
		}
		for _, element := range node.Content {
			problems = append(problems, nodeProblems(path+"[]", element, known[0])...)
		}
	case map[string]any:
		if node.Kind != yaml.MappingNode {
			return problem("must have fields")
		}
		for i := 0; i < len(node.Content); i += 2 {
			name, value := node.Content[i].Value, node.Content[i+1]
			field, ok := known[name]
			if !ok {
				field, ok = known["*"]
			}
			if !ok {
				problems = append(problems, problem("has no field "+name)...)
				continue
			}
			problems = append(problems, nodeProblems(path+"."+name, value, field)...)
		}
	}
	return problems
}

// The manifests of Kubernetes have fields that there are, with values of their types.
func TestManifestFields(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, manifestProblems(t, content), file)
	}
	// Each of these is found.
	content, err := os.ReadFile("../../deploy/kubernetes/jobq.yaml")
	require.NoError(t, err)
	for _, mistake := range []struct{ text, in, finds string }{
		{"readinessProbe: {", "readynessProbe: {", "Deployment.spec.template.spec.containers[] has no field readynessProbe"},
		{"replicas: 2", `replicas: "2"`, "Deployment.spec.replicas must be of the type int"},
		{`prometheus.io/port: "9400"`, "prometheus.io/port: 9400", "Deployment.spec.template.metadata.annotations.prometheus.io/port must be of the type str"},
		{"args: [migrate, up]", "args: migrate up", "Job.spec.template.spec.containers[].args must be a list"},
		{"seccompProfile: {type: RuntimeDefault}", "seccompProfile: RuntimeDefault", "Deployment.spec.template.spec.securityContext.seccompProfile must have fields"},
		{"apiVersion: batch/v1", "apiVersion: batch/v2", "batch/v2 Job is not known here"},
	} {
		text := strings.ReplaceAll(string(content), mistake.text, mistake.in)
		require.NotEqual(t, string(content), text, mistake.text)
		problems := strings.Join(manifestProblems(t, []byte(text)), "\n")
		require.Contains(t, problems, mistake.finds)
	}
}
