{{- define "gate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "gate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 55 | trimSuffix "-" }}
{{- else if contains (include "gate.name" .) .Release.Name }}
{{- .Release.Name | trunc 55 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "gate.name" .) | trunc 55 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "gate.selector" -}}
app.kubernetes.io/name: {{ include "gate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gate.labels" -}}
{{ include "gate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "gate.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "gate.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "gate.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The settings as the gate reads them. */}}
{{- define "gate.settings" -}}
{{- $settings := deepCopy .Values.settings }}
{{- if not (dig "upstream" "bootstrap" "" $settings) }}
{{- fail "settings.upstream.bootstrap is required: brokers of the cluster, HOST:PORT" }}
{{- end }}
{{- $listeners := list }}
{{- range $settings.listeners }}
{{- $listener := . }}
{{- if not (or (hasKey . "advertised_host") (hasKey . "sni")) }}
{{- $host := printf "%s.%s.svc" (include "gate.fullname" $) $.Release.Namespace }}
{{- $listener = set (deepCopy .) "advertised_host" $host }}
{{- end }}
{{- $listeners = append $listeners $listener }}
{{- end }}
{{- $_ := set $settings "listeners" $listeners }}
{{- $metrics := dict "address" (printf "0.0.0.0:%d" (int .Values.metrics.port)) "remote" true }}
{{- $_ := set $settings "metrics" (merge $metrics (default dict (get $settings "metrics"))) }}
{{- $_ := set $settings "state_directory" "/var/lib/batchval" }}
{{- toYaml $settings }}
{{- end }}

{{/* The ports of all listeners, as {"ports": [{"name", "port"}]} in JSON. */}}
{{- define "gate.ports" -}}
{{- $ports := list }}
{{- range $n, $listener := .Values.settings.listeners }}
{{- $port := $listener.address | toString | regexFind "[0-9]+$" | int }}
{{- if not $port }}
{{- fail (printf "settings.listeners[%d].address: expected HOST:PORT, not %v" $n $listener.address) }}
{{- end }}
{{- $ports = append $ports (dict "name" (printf "l%d" $n) "port" $port) }}
{{- if not (hasKey $listener "sni") }}
{{- $first := default (add $port 1) (get $listener "first_broker_port") | int }}
{{- $most := default 100 (get $listener "broker_ports") | int }}
{{- range $.Values.brokerIds }}
{{- if ge (int .) $most }}
{{- fail (printf "brokerIds: broker %d is not below broker_ports (%d) of settings.listeners[%d]" (int .) $most $n) }}
{{- end }}
{{- $ports = append $ports (dict "name" (printf "l%d-broker-%d" $n (int .)) "port" (add $first (int .))) }}
{{- end }}
{{- end }}
{{- end }}
{{- dict "ports" $ports | toJson }}
{{- end }}

{{/* Stop delay, drain and a margin, in seconds. */}}
{{- define "gate.graceSeconds" -}}
{{- $delay := dig "limits" "stop_delay_ms" 0 .Values.settings | int }}
{{- $drain := dig "limits" "drain_timeout_ms" 30000 .Values.settings | int }}
{{- add (div (add $delay $drain 999) 1000) .Values.terminationMarginSeconds }}
{{- end }}
