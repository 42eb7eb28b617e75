"""A Deployment with vLLM's own image."""

import json

from chunkscope.engine.flags import container_words, dotted
from chunkscope.planning.emit.emission import PLACEHOLDER, Emission, model_of
from chunkscope.planning.plan import Plan

TEMPLATE = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: vllm
spec:
  replicas: 1
  selector:
    matchLabels: {{app: vllm}}
  template:
    metadata:
      labels: {{app: vllm}}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v{version}
          args: {args}
          ports: [{{containerPort: 8000}}]
          resources:
            limits: {{nvidia.com/gpu: {gpus}}}
          volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
      volumes:
        - name: shm
          emptyDir: {{medium: Memory}}"""


def emit(plan: Plan) -> Emission:
    args = container_words(model_of(plan) or PLACEHOLDER, plan.cli_args())
    text = TEMPLATE.format(
        version=dotted(plan.release.version), args=json.dumps(args), gpus=plan.inputs.tp
    )
    return Emission(text=text, lost=plan.lost)
