"""Plan -> a file that runs vLLM's own image: for Docker Compose, for Kubernetes."""

import json
import math
import os.path
from pathlib import Path

from chunkscope.hardware.gpus import GIB
from chunkscope.planning.emission import NO_MODEL, Emission, for_clients, model_of
from chunkscope.planning.plan import Plan
from chunkscope.vllm.flags import SERVE, dotted

# The entry point is spelled out: that of the image is another one in older versions.
COMPOSE = """services:
  vllm:
    image: vllm/vllm-openai:v{version}
    entrypoint: {entrypoint}
    command: {words}
    ports: ["8000:8000"]
    ipc: host
    environment: [HF_HOME=/cache, HF_TOKEN]
    volumes:
      - ~/.cache/huggingface:/cache{mount}
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: {gpus}
              capabilities: [gpu]"""

# Kubernetes names the address of each Service in variables of every pod; VLLM_... are vLLM's own.
KUBERNETES = """apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: vllm-cache
spec:
  accessModes: [ReadWriteOnce]
  resources:
    requests: {{storage: {storage}Gi}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: vllm
spec:
  replicas: 1
  strategy: {{type: Recreate}}
  selector:
    matchLabels: {{app: vllm}}
  template:
    metadata:
      labels: {{app: vllm}}
    spec:
      enableServiceLinks: false
      containers:
        - name: vllm
          image: vllm/vllm-openai:v{version}
          command: {entrypoint}
          args: {words}
          env:
            - name: HF_HOME
              value: /cache
            - name: HF_TOKEN
              valueFrom:
                secretKeyRef: {{name: hf-token, key: token, optional: true}}
          ports: [{{containerPort: 8000}}]
          readinessProbe:
            httpGet: {{path: /health, port: 8000}}
            periodSeconds: 10
          resources:
            limits: {{nvidia.com/gpu: {gpus}}}
          volumeMounts:
            - {{name: shm, mountPath: /dev/shm}}
            - {{name: cache, mountPath: /cache}}{mount}
      volumes:
        - name: shm
          emptyDir: {{medium: Memory}}
        - name: cache
          persistentVolumeClaim: {{claimName: vllm-cache}}{volume}
---
apiVersion: v1
kind: Service
metadata:
  name: vllm
spec:
  selector: {{app: vllm}}
  ports: [{{port: 8000}}]"""

GATED = (
    "a gated model needs a token: `kubectl create secret generic hf-token "
    "--from-literal=token=$HF_TOKEN`"
)


def docker_compose(plan: Plan) -> Emission:
    mount = ""
    if folder := _folder(plan):
        place = _interpolated(folder)
        mount = f"\n      - {{type: bind, source: {place}, target: {place}, read_only: true}}"
    text = _filled(COMPOSE, plan, mount=mount)
    notes = ("a gated model needs HF_TOKEN in your environment", "tried with Compose's schema")
    return _manifest(plan, text, *notes)


def kubernetes(plan: Plan) -> Emission:
    mount = volume = ""
    notes = [GATED]
    if folder := _folder(plan):
        # `$` means something in a container's arguments only.
        place = json.dumps(folder)
        mount = f"\n            - {{name: model, mountPath: {place}, readOnly: true}}"
        volume = f"\n        - name: model\n          hostPath: {{path: {place}, type: Directory}}"
        notes = [f"the node must have the folder {folder}"]
    text = _filled(KUBERNETES, plan, mount=mount, volume=volume, storage=_storage(plan))
    return _manifest(plan, text, *notes, "tried with the schemas of Kubernetes 1.25 to 1.37")


def _filled(template: str, plan: Plan, **parts: object) -> str:
    return template.format(
        version=dotted(plan.release.version),
        entrypoint=json.dumps(SERVE),
        words=_interpolated([_folder(plan) or model_of(plan), *plan.cli_args()]),
        gpus=plan.inputs.tp * plan.settings.parallel.data,
        **parts,
    )


def _interpolated(value: object) -> str:
    """As YAML that is read with `$` for variables, which a path has none of."""
    return json.dumps(value).replace("$", "$$")


def _manifest(plan: Plan, text: str, *notes: str) -> Emission:
    fill = () if plan.model else (f"put your model for {NO_MODEL}",)
    return Emission(text=text, lost=plan.lost, notes=(*fill, *notes, *for_clients(plan)))


def _folder(plan: Plan) -> str | None:
    """The model's folder on this machine, which a container does not see by itself."""
    shape = plan.model
    if shape is None or shape.hub_id != str(Path(shape.source).parent):
        return None
    return os.path.abspath(shape.hub_id)  # noqa: PTH100  (without `..`, and links as they are)


def _storage(plan: Plan) -> int:
    """GiB for a download of the weights, with room for another try, in tens."""
    weights = plan.model.weight_bytes / GIB if plan.model else 40
    return 10 * math.ceil((2 * weights + 10) / 10)
