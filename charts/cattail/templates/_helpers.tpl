{{/* Names are fixed: there is one Cattail in a cluster, and access rules, Lease and certificate are looked for by name. */}}

{{- define "cattail.labels" -}}
app.kubernetes.io/name: cattail
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Of pods, which get no label that names a version: it would restart them for nothing. Never changed, as a selector cannot be. */}}
{{- define "cattail.selector" -}}
app.kubernetes.io/name: cattail
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* Takes {root, component, name, labels, annotations}; the last two may be missing. */}}
{{- define "cattail.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "cattail.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with mergeOverwrite (dict) .root.Values.commonAnnotations (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "cattail.image" -}}
{{- $registry := .Values.image.registry | default .Values.global.imageRegistry -}}
{{- with $registry }}{{ . }}/{{ end }}{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "cattail.pullSecrets" -}}
{{- with .Values.global.imagePullSecrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The server's file. What the chart decides itself wins; values.schema.json lets nobody write it twice. */}}
{{- define "cattail.serverConfig" -}}
{{- $tls := dict "certFile" "/etc/cattail/tls/tls.crt" "keyFile" "/etc/cattail/tls/tls.key" }}
{{- if eq .Values.tls.mode "auto" }}{{ $tls = dict "issueFor" .Values.tls.serverName }}{{ end }}
{{- $own := dict
  "apiVersion" "cattail.io/v1"
  "namespace" .Release.Namespace
  "ports" .Values.server.ports
  "auth" (dict "agents" (list (printf "%s/cattail-agent" .Release.Namespace)))
  "tls" $tls
  "events" (dict "enabled" .Values.events.enabled) }}
{{- mergeOverwrite (deepCopy .Values.server.config) $own | toYaml }}
{{- end }}

{{- define "cattail.agentConfig" -}}
{{- $install := .Values.agent.install }}
{{- if not $install.patchConflist }}{{ $install = omit $install "patchConflist" }}{{ end }}
{{- $own := dict
  "apiVersion" "cattail.io/v1"
  "tokenFile" "/var/run/secrets/cattail/token"
  "tls" (dict "caFile" "/etc/cattail/ca/ca.crt" "serverName" .Values.tls.serverName)
  "ports" .Values.agent.ports
  "install" $install }}
{{- mergeOverwrite (deepCopy .Values.agent.config) $own | toYaml }}
{{- end }}

{{/* Changes when something in the file does that a running process does not take over by itself (test/chart holds the list). */}}
{{- define "cattail.serverChecksum" -}}
{{- $config := include "cattail.serverConfig" . | fromYaml }}
{{- template "cattail.checksum" (dict "config" $config "reloadable" (list "upstream.staleAfter" "commit.maxInFlight" "offlineLimit" "reaper.after" "log.level")) }}
{{- end }}
{{- define "cattail.agentChecksum" -}}
{{- $config := include "cattail.agentConfig" . | fromYaml }}
{{- template "cattail.checksum" (dict "config" $config "reloadable" (list "warm.floor" "warm.ceiling" "flushDelay" "offlineLimit" "log.level")) }}
{{- end }}
{{- define "cattail.checksum" -}}
{{- $config := .config }}
{{- range .reloadable }}
{{- $path := splitList "." . }}
{{- $group := len $path | eq 1 | ternary $config (get $config (first $path)) }}
{{- if $group }}{{ $_ := unset $group (last $path) }}{{ end }}
{{- if not $group }}{{ $_ := unset $config (first $path) }}{{ end }}
{{- end }}
{{- $config | toJson | sha256sum }}
{{- end }}

{{/* Takes {probes, port}. Nothing without a port. */}}
{{- define "cattail.probes" -}}
{{- if .port -}}
startupProbe:
  httpGet: {path: /livez, port: http}
  {{- toYaml .probes.startup | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: http}
  {{- toYaml .probes.readiness | nindent 2 }}
livenessProbe:
  httpGet: {path: /livez, port: http}
  {{- toYaml .probes.liveness | nindent 2 }}
{{- end }}
{{- end }}

{{/* Takes {root, group, what}. */}}
{{- define "cattail.demandApi" -}}
{{- if not (.root.Capabilities.APIVersions.Has .group) }}
{{- fail (printf "%s needs %s, which this cluster does not serve: install what brings it, or switch it off" .what .group) }}
{{- end }}
{{- end }}

{{- define "cattail.authorityConfigMap" -}}
{{- if eq .Values.tls.mode "auto" }}cattail-authority{{ else }}
{{- required (printf "tls.mode %s needs tls.caConfigMap: the ConfigMap with the ca.crt that agents are to trust" .Values.tls.mode) .Values.tls.caConfigMap }}
{{- end }}
{{- end }}

{{- define "cattail.tlsSecret" -}}
{{- if eq .Values.tls.mode "certManager" }}{{ .Values.tls.secretName | default "cattail-server-tls" }}{{ else }}
{{- required "tls.mode secret needs tls.secretName: the Secret of type kubernetes.io/tls with the stream's certificate" .Values.tls.secretName }}
{{- end }}
{{- end }}
