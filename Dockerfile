# One image with the four programs: metp-coordinator, metp-worker, metp-rank, metpctl.
#
#   docker build -t metp .
#   docker run --rm metp metpctl --help
#   docker run --network host -v metp-state:/var/lib/metp metp metp-coordinator --state-dir /var/lib/metp
#
# The first stage compiles with Debian 12's own packages; the second has the programs and the shared libraries they need.

FROM debian:bookworm-slim AS build
WORKDIR /src
COPY deploy/packages.sh deploy/packages.sh
RUN deploy/packages.sh build && rm -rf /var/lib/apt/lists/*
COPY CMakeLists.txt ./
COPY deploy/cmake deploy/cmake
COPY proto proto
COPY server server
COPY worker worker
COPY client client
RUN cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DMETP_TESTS=OFF \
 && cmake --build build --target metp-coordinator metp-worker metp-rank metpctl \
 && install -D --strip -t /out \
      build/bin/metp-coordinator build/bin/metp-worker build/bin/metp-rank build/bin/metpctl

FROM debian:bookworm-slim
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="metp" \
      org.opencontainers.image.description="Memory-efficient tensor parallelism for long-sequence Transformer training" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim"
COPY deploy/packages.sh /tmp/packages.sh
RUN /tmp/packages.sh runtime && rm -rf /var/lib/apt/lists/* /tmp/packages.sh \
 && useradd --system --uid 10001 --user-group --home-dir /var/lib/metp --shell /usr/sbin/nologin metp \
 && install -d -o metp -g metp -m 0750 /var/lib/metp
COPY --from=build /out/ /usr/local/bin/
USER 10001:10001
WORKDIR /var/lib/metp
VOLUME /var/lib/metp
STOPSIGNAL SIGTERM
# `env` starts the program named after it in its own place, so that the program is process 1 and gets the signals.
ENTRYPOINT ["/usr/bin/env"]
CMD ["metpctl", "--help"]
