# The board in a container: docker compose up. Everything that is kept lies in the volume /home/factory/home.
FROM python:3.11-slim

# One user of its own; training as root is nobody's wish.
RUN useradd --create-home --uid 1000 factory
USER factory
WORKDIR /home/factory/app
ENV PATH=/home/factory/venv/bin:$PATH \
    FACTORY_HOME=/home/factory/home \
    FACTORY_SLOTS=/home/factory/slots \
    HF_HOME=/home/factory/home/cache/huggingface \
    PYTHONUNBUFFERED=1

# The same files as launch.py installs, in the same order; on their own first, so that a change of the code costs no
# installation.
COPY --chown=factory requirements.txt requirements-embedded.txt ./
RUN python -m venv /home/factory/venv \
    && pip install --no-cache-dir -r requirements.txt \
    && pip install --no-cache-dir --no-deps -r requirements-embedded.txt

COPY --chown=factory . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable . && mkdir -p /home/factory/home

VOLUME /home/factory/home
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7860/api/health', timeout=4)"]

# It listens on all of the container's addresses, and so never without a token: FACTORY_TOKEN, or one that is made and
# printed once.
CMD ["factory", "board", "--host", "0.0.0.0", "--port", "7860"]
