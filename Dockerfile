# A server for one run: docker run -p 8000:8000 -e REGARD_TOKEN=... -v "$PWD/runs/dates:/run:ro" regard
FROM python:3.11-slim

WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m pip install --no-cache-dir -c constraints.txt \
    --extra-index-url https://download.pytorch.org/whl/cpu '.[export,kernels,training,visual,web]'

RUN useradd --create-home regard
USER regard
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz')"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["regard", "serve"]
CMD ["/run", "--host", "0.0.0.0", "--port", "8000"]
