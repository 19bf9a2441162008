{{- define "agentloop.labels" -}}
app.kubernetes.io/name: agentloop
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The address on which a pod listens for all. */}}
{{- define "agentloop.any" -}}
{{- if eq .Values.ipFamily "IPv6" }}[::]{{ else }}0.0.0.0{{ end }}
{{- end }}

{{/* The address at which a pod is reached by others. */}}
{{- define "agentloop.advertise" -}}
{{- if eq .Values.ipFamily "IPv6" }}[$(POD_IP)]{{ else }}$(POD_IP){{ end }}:50052
{{- end }}
