"""What we read off a config.json is what vLLM reads off it: every built-in model, 1 to 8 GPUs."""

import json

import pytest

from chunkscope.errors import ChunkscopeError
from chunkscope.hardware.gpus import Parallel
from chunkscope.hardware.memory import Runner
from chunkscope.models import MODELS, find_model
from chunkscope.vllm.flags import release

pytestmark = pytest.mark.real

SPLITS = (1, 2, 4, 8)
# Their image processors need torchvision, which the CPU build cannot have.
UNREADABLE = {"gemma-3-4b", "gemma-3-12b", "gemma-3-27b"}
NAMES = sorted(MODELS.keys() - UNREADABLE)


@pytest.fixture(scope="session")
def read(probe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in NAMES:
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(dict(MODELS[name].config)))
    asked = [(name, tp) for name in NAMES for tp in SPLITS]
    answers = probe("model_probe", [[str(folder / name), tp] for name, tp in asked])
    return dict(zip(asked, answers, strict=True))


def splits(shape, tp):
    try:
        Parallel(tensor=tp).check(shape)
    except ChunkscopeError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_limit_kv_cache_runner_and_splits_are_vllms(read, installed, name):
    shape = find_model(name)
    runner = release(installed[0]).runner(shape.architecture, dense=shape.dense)
    assert read[name, 1]["v2_runner"] == (runner is Runner.V2)
    for tp in SPLITS:
        seen = read[name, tp]
        assert ("refused" not in seen) == splits(shape, tp), seen
        if splits(shape, tp):
            ours = (shape.limit, shape.kv_bytes_per_token(tp))
            assert (seen["limit"], seen["kv_bytes_per_token"]) == ours, tp
