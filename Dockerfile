# All images of inference-cache; --target chooses one: server (the router), indexer, controller, subscriber (the
# sidecar of an engine), cli, or simengine (a simulated engine). An image holds an interpreter and one program
# with its packages, no shell and no package manager, and runs as user 65532 on a read-only file system.
#
#   docker build --target server --tag inference-cache-server .
#
# BASE_IMAGE is any image with Python 3.11 or newer (with venv), glibc and ldd. Behind a mirror, name it with
# --build-arg PIP_INDEX_URL=…; HTTP_PROXY and HTTPS_PROXY work as with every build. --build-arg COMMIT=… is what
# `inferencecache --version` tells beside the version; make images gives it.
ARG BASE_IMAGE=python:3.13-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_CERT
WORKDIR /source
RUN python3 -m venv /environment
COPY requirements/runtime.txt requirements/
RUN /environment/bin/pip install --disable-pip-version-check --no-cache-dir --require-hashes \
      --requirement requirements/runtime.txt
COPY deploy/images/assemble.py deploy/images/
RUN /environment/bin/python deploy/images/assemble.py /roots/runtime
COPY proto proto
COPY schemas schemas
COPY core core
COPY services services
COPY client client
COPY cli cli
COPY simengine simengine
RUN /environment/bin/pip install --disable-pip-version-check --no-cache-dir --no-index --no-deps \
      --no-build-isolation ./proto ./schemas ./core ./services/* ./client ./cli ./simengine
# Kernels are compiled for any processor of the architecture; an image that finds none of its own would take half
# a minute to start.
ENV NUMBA_CPU_NAME=generic
RUN /environment/bin/python -c 'import inferencecache.core.index.kernels'
COPY deploy/images/warmed_kernels.py /tmp/
RUN for image in indexer controller kvevent-subscriber cli simengine; do \
      /environment/bin/python deploy/images/assemble.py "/roots/$image" "inference-cache-$image" || exit 1; \
    done \
 && /environment/bin/python deploy/images/assemble.py /roots/router "inference-cache-router[text]" \
 && for image in router indexer cli; do \
      cp /tmp/warmed_kernels.py /roots/$image/opt/inference-cache/lib/python*/site-packages/ || exit 1; \
    done

FROM scratch AS runtime
COPY --from=build /roots/runtime /
ENV PATH=/opt/inference-cache/bin PYTHONUNBUFFERED=1
USER 65532:65532

FROM runtime AS indexed
ENV NUMBA_CPU_NAME=generic NUMBA_CACHE_LOCATOR_CLASSES=warmed_kernels.WarmedCacheLocator

FROM indexed AS server
COPY --from=build /roots/router /
EXPOSE 9090 8080
ENTRYPOINT ["python", "-m", "inferencecache.router"]

FROM indexed AS indexer
COPY --from=build /roots/indexer /
EXPOSE 8080
ENTRYPOINT ["python", "-m", "inferencecache.indexer"]

FROM runtime AS controller
COPY --from=build /roots/controller /
EXPOSE 8080 8081 9443
ENTRYPOINT ["python", "-m", "inferencecache.controller"]

FROM runtime AS subscriber
COPY --from=build /roots/kvevent-subscriber /
EXPOSE 8082
ENTRYPOINT ["python", "-m", "inferencecache.kvevent_subscriber"]

FROM indexed AS cli
COPY --from=build /roots/cli /
# Behind all that is copied, so that another commit alone builds nothing anew.
ARG COMMIT
ENV INFERENCECACHE_COMMIT=${COMMIT}
ENTRYPOINT ["python", "-m", "inferencecache.cli"]

FROM runtime AS simengine
COPY --from=build /roots/simengine /
EXPOSE 8000 5557 5558
ENTRYPOINT ["python", "-m", "inferencecache.simengine"]
