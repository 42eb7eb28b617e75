"""A compose file with vLLM's own image."""

import json

from chunkscope.engine.flags import container_words, dotted
from chunkscope.planning.emit.emission import PLACEHOLDER, Emission, model_of
from chunkscope.planning.plan import Plan

TEMPLATE = """services:
  vllm:
    image: vllm/vllm-openai:v{version}
    command: {command}
    ports: ["8000:8000"]
    ipc: host
    environment: {{HF_HOME: /models}}
    volumes: ["~/.cache/huggingface:/models"]
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: {gpus}
              capabilities: [gpu]"""


def emit(plan: Plan) -> Emission:
    command = container_words(model_of(plan) or PLACEHOLDER, plan.cli_args())
    text = TEMPLATE.format(
        version=dotted(plan.release.version), command=json.dumps(command), gpus=plan.inputs.tp
    )
    return Emission(text=text, lost=plan.lost)
