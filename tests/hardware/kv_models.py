"""Small models with the ratios of real ones: kv_models.json has what each states.

gemma-3 has a full layer in 6 and a rest; gemma-4's full attention has wider heads, or
fewer that hold the keys alone; falcon states as many KV heads as heads and has one.
"""

import json
from pathlib import Path
from typing import Any


def _configs() -> dict[str, dict[str, Any]]:
    models = json.loads(Path(__file__).with_suffix(".json").read_text())
    common = models.pop("common")
    return {
        name: {
            key: value for key, value in {**common, **own}.items() if value != "absent"
        }
        for name, own in models.items()
    }


CONFIGS = _configs()
