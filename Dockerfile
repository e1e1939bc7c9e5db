# Phalanx for pods: Python, PyTorch for CPUs, Phalanx; for a user who is not root.
#   docker build -t registry.example/phalanx:1 .
# The first stage compiles the native code, for every kind of CPU of this architecture: the second has no compiler.
FROM python:3.13-slim AS wheel

RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /usr/src/phalanx
COPY pyproject.toml README.md LICENSE ./
COPY dev/wheel_hook.py ./dev/
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . && ls /wheels/*manylinux*

FROM python:3.13-slim

# torch and torchvision from one index: they are built together
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch torchvision
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl \
 && ln -sf "$(command -v python3)" /usr/bin/python3

RUN useradd --uid 1000 --create-home phalanx && mkdir /phalanx && chown phalanx /phalanx
USER 1000
ENV XDG_CACHE_HOME=/home/phalanx/.cache
WORKDIR /phalanx
CMD ["phalanx", "--help"]
