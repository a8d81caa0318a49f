{{- define "socksplice.labels" -}}
{{ include "socksplice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "socksplice.selector" -}}
app.kubernetes.io/name: socksplice
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "socksplice.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* The socket's folder, as an engine that starts again makes a new socket. Not all of /run. */}}
{{- define "socksplice.engineMount" -}}
{{ eq (dir .) "/run" | ternary . (dir .) }}
{{- end }}

{{- define "socksplice.mounts" -}}
- name: policy
  mountPath: /etc/socksplice
  readOnly: true
- name: bpf
  mountPath: /sys/fs/bpf
- name: cgroup
  mountPath: /sys/fs/cgroup
  readOnly: true
# by the agent's lock here 'policy set' sees that it runs, on the node, too
- name: run
  mountPath: /run/socksplice
{{- end }}
