# One image for the whole cluster: metp-coordinator, metp-worker with metp-rank, metpctl.
#
#   docker build -t metp .                              # the CPU image, the same as --target cpu
#   docker build -t metp:cuda --target cuda .           # with the CUDA backend
#   docker run --rm metp metpctl --help
#   docker run --network host -v metp-state:/var/lib/metp metp metp-coordinator --state /var/lib/metp
#
# Without a Docker daemon: deploy/image/build.sh.
#
# Both targets are compiled and run on Debian 12, whose library versions METP is built with. NVIDIA publishes no image of it:
# the CUDA target takes compiler, headers and libraries out of its development image for Ubuntu 22.04, whose C library
# (2.35) is older than Debian 12's (2.36), so that all of it runs here; that of Ubuntu 24.04 (2.39) is newer.
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-devel-ubuntu22.04

# --- compiling --------------------------------------------------------------------------------------------------------

FROM debian:bookworm-slim AS source
WORKDIR /src
COPY deploy/packages.sh deploy/packages.sh
RUN deploy/packages.sh build && rm -rf /var/lib/apt/lists/*
COPY CMakeLists.txt ./
COPY deploy/cmake deploy/cmake
COPY proto proto
COPY server server
COPY worker worker
COPY client client

# No run paths: all libraries are where the loader looks.
FROM source AS programs
RUN cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_SKIP_RPATH=ON -DMETP_TESTS=OFF -DMETP_CUDA=OFF \
 && cmake --build build --target metp-coordinator metp-worker metp-rank metpctl \
 && install -D --strip -t /out \
      build/bin/metp-coordinator build/bin/metp-worker build/bin/metp-rank build/bin/metpctl

# What is needed of CUDA beyond its folder: NCCL to build with (/nccl), and two libraries at run time (/lib-cuda).
FROM ${CUDA_IMAGE} AS toolkit
RUN install -D -t /nccl/include /usr/include/nccl.h \
 && install -D -t /nccl/lib "/usr/lib/$(uname -m)-linux-gnu/libnccl.so.2" \
 && ln -s libnccl.so.2 /nccl/lib/libnccl.so \
 && install -D -t /lib-cuda /nccl/lib/libnccl.so.2 /usr/local/cuda-13.0/lib64/libcublasLt.so.13

# The programs are the same with and without GPUs; metp-rank loads this module where a worker has one.
FROM source AS module
COPY --from=toolkit /nccl/ /usr/local/
RUN --mount=type=bind,from=toolkit,source=/usr/local/cuda-13.0,target=/usr/local/cuda-13.0 \
    cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_SKIP_RPATH=ON -DMETP_TESTS=OFF -DMETP_SERVICES=OFF \
      -DMETP_CUDA=ON -DCUDAToolkit_ROOT=/usr/local/cuda-13.0 \
 && cmake --build build --target metp-cuda \
 && install -D --strip -t /out build/bin/metp-cuda.so

# --- running ----------------------------------------------------------------------------------------------------------

FROM debian:bookworm-slim AS runtime
COPY deploy/packages.sh /tmp/packages.sh
RUN /tmp/packages.sh runtime && rm -rf /var/lib/apt/lists/* /tmp/packages.sh \
 && useradd --system --uid 10001 --user-group --home-dir /var/lib/metp --shell /usr/sbin/nologin metp \
 && install -d -o metp -g metp -m 0750 /var/lib/metp
COPY deploy/examples /usr/share/metp/examples
WORKDIR /var/lib/metp
STOPSIGNAL SIGTERM
# `env` starts the program named after it in its own place, so that the program is process 1 and gets the signals.
ENTRYPOINT ["/usr/bin/env"]
CMD ["metpctl", "--help"]
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="metp" \
      org.opencontainers.image.description="Memory-efficient tensor parallelism for long-sequence Transformer training" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim"

FROM runtime AS cuda
COPY deploy/packages.sh /tmp/packages.sh
RUN /tmp/packages.sh rdma && rm -rf /var/lib/apt/lists/* /tmp/packages.sh
COPY --from=toolkit /lib-cuda/ /usr/local/lib/
RUN ldconfig
# What NVIDIA's container runtime brings in where a device is asked for: the driver, and its management library.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=programs /out/ /usr/local/bin/
COPY --from=module /out/ /usr/local/bin/
USER 10001:10001

FROM runtime AS cpu
COPY --from=programs /out/ /usr/local/bin/
USER 10001:10001
