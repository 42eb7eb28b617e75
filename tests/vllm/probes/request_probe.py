"""What vLLM's server makes of tools and of tool-call arguments, run by a Python that has it."""

import json
import sys


def written(tool):
    try:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam
    except ImportError:  # before 0.15
        from vllm.entrypoints.openai.protocol import ChatCompletionToolsParam

    return ChatCompletionToolsParam.model_validate(tool).model_dump()


def arguments(given):
    from vllm.entrypoints.chat_utils import _postprocess_messages

    call = {"type": "function", "function": {"name": "f", "arguments": given}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    try:
        _postprocess_messages([message])
    except ValueError:
        return "refused"
    return call["function"]["arguments"]


asked = json.load(sys.stdin)
import vllm  # noqa: E402  (it takes a while)

answer = {
    "version": vllm.__version__,
    "tools": [written(tool) for tool in asked["tools"]],
    "arguments": [arguments(given) for given in asked["arguments"]],
}
print("request-probe:" + json.dumps(answer))
