# syntax=docker/dockerfile:1
#
#   docker build -t agentloop .
#   docker run --rm -p 127.0.0.1:50051:50051 -v agentloop:/data -e OPENAI_API_KEY agentloop
#
# /data has the database. A configuration is mounted at /etc/agentloop/agentloop.toml; server/docs/guide/operating.md
# explains both.
#
# Inside the container, the server listens on every interface, or no client could reach it, and the image allows that without
# TLS and authentication. So publish the port to 127.0.0.1, as above, or mount a configuration with [tls] and [auth]: see
# server/docs/guide/security.md.

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends make && rm -rf /var/lib/apt/lists/*
# true: a profile-guided build (server/release), which takes three times as long.
ARG PROFILED=false
WORKDIR /src
COPY . .
# Caches keep the registry and the target folder between builds. A cache is not part of the image, so the binary is copied
# out of it.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,sharing=locked \
    if [ "$PROFILED" = true ]; then server/release /out/agentloop; else \
    cargo build --release --locked --package agentloop-cli --bin agentloop \
    && install -D target/release/agentloop /out/agentloop; fi \
    && strip --strip-debug /out/agentloop
# The runtime image has no shell, so the data folder is made here.
RUN install -d /out/data

# The runtime image has glibc, certificates and nothing else. It runs as user 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="agentloop" \
      org.opencontainers.image.description="Runs agent loops: a gRPC server with durable runs, tools and approvals" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="gcr.io/distroless/cc-debian12:nonroot"
COPY --from=build /out/agentloop /usr/local/bin/agentloop
COPY --from=build --chown=65532:65532 /out/data /data
# Every key is commented out in it, so it changes nothing.
COPY server/agentloop.example.toml /etc/agentloop/agentloop.toml
# Container engines kill what has not ended 10 s after SIGTERM, so the server takes less.
ENV AGENTLOOP_CONFIG=/etc/agentloop/agentloop.toml \
    AGENTLOOP_SERVER_LISTEN=0.0.0.0:50051 \
    AGENTLOOP_SERVER_ALLOW_INSECURE_REMOTE=true \
    AGENTLOOP_SERVER_SHUTDOWN_GRACE=8s \
    AGENTLOOP_STORE_PATH=/data/agentloop.db \
    AGENTLOOP_LOG_FORMAT=json
WORKDIR /data
VOLUME /data
EXPOSE 50051
STOPSIGNAL SIGTERM
# --local asks at the address that the variables and the file above configure.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
    CMD ["agentloop", "health", "--local"]
ENTRYPOINT ["agentloop"]
CMD ["serve"]
