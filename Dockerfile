# A server for one bundle of `attncem export` (docs/serve.md). Untested: the project has no container engine.
# tests/test_distributions.py runs the pip lines, the command and the health check in an environment of Python 3.11.
#
#   docker build -t attncem-serve .
#   export ATTNCEM_TOKEN="$(openssl rand -hex 32)"
#   docker run -p 8000:8000 -v "$PWD/bundle:/bundle:ro" -e ATTNCEM_TOKEN attncem-serve
FROM python:3.11-slim AS build
WORKDIR /project
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src ./src
COPY edge/src ./edge/src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /tmp/wheels
# `pip install attncem[serve]` would also install torch, which the server never imports: so its libraries are named here.
RUN pip install --no-cache-dir -c /tmp/constraints.txt httptools numpy onnxruntime pillow rich starlette uvicorn uvloop
RUN pip install --no-cache-dir --no-deps /tmp/wheels/*.whl
RUN useradd --uid 10001 --no-create-home attncem
USER 10001
VOLUME /bundle
EXPOSE 8000
# An address that other machines reach needs a token: ATTNCEM_TOKEN, or --tokens FILE. With TLS, replace the health check.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=4)"]
ENTRYPOINT ["attncem", "serve", "/bundle"]
CMD ["--host", "0.0.0.0"]
