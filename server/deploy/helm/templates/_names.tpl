{{- define "agentloop.labels" -}}
app.kubernetes.io/name: agentloop
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
