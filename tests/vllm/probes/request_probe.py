"""Run by a Python that has vLLM: what its server makes of tools and their arguments."""

import json
import sys


def written(tool):
    try:
        from vllm.entrypoints.openai.chat_completion.protocol import (
            ChatCompletionToolsParam,
        )
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


def called(call):
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    message = {"role": "assistant", "tool_calls": [call]}
    (made,) = ChatCompletionRequest.model_validate({"messages": [message]}).messages
    return next(iter(made["tool_calls"]))


def claude(request):
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from vllm.entrypoints.anthropic.serving import AnthropicServingMessages

    given = AnthropicMessagesRequest(model="m", max_tokens=1, **request)
    made = AnthropicServingMessages._convert_anthropic_to_openai_request(given)
    return {
        "messages": made.messages,
        "tools": [tool.model_dump() for tool in made.tools],
    }


def messages(items):
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.entrypoints.openai.responses.utils import construct_input_messages

    made = construct_input_messages(request_input=ResponsesRequest(input=items).input)
    return {"messages": made}


asked = json.load(sys.stdin)
import vllm  # noqa: E402  (it takes a while)

answer = {
    "version": vllm.__version__,
    "tools": [written(tool) for tool in asked["tools"]],
    "arguments": [arguments(given) for given in asked["arguments"]],
    "called": called(asked["called"]),
    "claude": claude(asked["claude"]),
    "items": messages(asked["items"]),
}
print("request-probe:" + json.dumps(answer, default=list))
