# syntax=docker/dockerfile:1
# The decision service. Build: docker build -t depsue .    Run: see compose.yaml and docs/runbook.md.
# Nothing secret is in the image: tokens are made afterwards, passwords come from the environment.

FROM python:3.11-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/depsue
ENV PATH=/opt/depsue/bin:$PATH
WORKDIR /build
COPY constraints.txt ./
# torch by itself and first; TORCH_INDEX names an index that carries the CPU build, if pip's has another.
ARG TORCH_INDEX=
RUN pip install --no-deps -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install -c constraints.txt '.[postgres]' && pip check

FROM python:3.11-slim
RUN groupadd --gid 10001 depsue \
 && useradd --uid 10001 --gid depsue --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin depsue \
 && install -d -o depsue -g depsue -m 0700 /campaigns
COPY --from=build /opt/depsue /opt/depsue
ENV PATH=/opt/depsue/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    MPLCONFIGDIR=/tmp \
    OMP_NUM_THREADS=1 \
    DEPSUE_HOME=/campaigns
USER depsue
WORKDIR /campaigns
VOLUME /campaigns
EXPOSE 8470
# /readyz answers 503 while no decision can be made.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8470/readyz', timeout=4)"]
ENTRYPOINT ["depsue"]
CMD ["serve", "--help"]
