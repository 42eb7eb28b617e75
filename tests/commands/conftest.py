"""The gate's command is tried in the same folder of artefacts as its promises."""

from tests.gating.conftest import place as place
