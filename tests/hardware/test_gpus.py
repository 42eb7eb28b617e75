import stat

import pytest

from chunkscope.errors import MissingError, UsageError
from chunkscope.hardware import gpus as hardware
from chunkscope.hardware.gpus import GIB, TABLE, doubts, find_gpu


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        *(("80GiB", 80), ("80 GiB", 80)),
        *(("24GB", 24e9 / GIB), ("24576MiB", 24), ("0.5TiB", 512)),
    ],
)
def test_memory_alone_is_a_gpu_of_unknown_speed(text, gib):
    gpu = find_gpu(text)
    assert gpu.memory_gib == pytest.approx(gib)
    assert gpu.speed is None


@pytest.mark.parametrize(
    "text", ["", "much", "-3GiB", "0GiB", "80 apples", "8,5GiB", "1e3", "80"]
)
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(UsageError):
        find_gpu(text)


@pytest.mark.parametrize(
    ("name", "card"),
    [
        *(("H200", "h200"), ("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100")),
        *(("4090", "rtx-4090"), ("RTX4090", "rtx-4090"), ("H100-SXM5-80GB", "h100")),
        *(
            ("NVIDIA A100-SXM4-80GB", "a100"),
            ("a100-80gb", "a100"),
            ("NVIDIA GB200", "gb200"),
        ),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        *(("NVIDIA GeForce RTX 4090", "rtx-4090"), ("AMD Instinct MI300X", "mi300x")),
    ],
)
def test_a_gpu_is_found_by_any_of_its_names(name, card):
    assert find_gpu(name) is TABLE[card]


def test_every_card_has_a_source_and_every_other_name_a_card():
    assert all(row["source"] for row in hardware.ROWS)
    assert set(hardware.ALIASES.values()) <= set(TABLE)


def fake_smi(folder, monkeypatch, output, code=0):
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{output}'\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("output", "facts"),
    [
        ("NVIDIA H200, 143771\\nNVIDIA H200, 143771\\n", ("h200", 139.8, 989)),
        ("NVIDIA Z9000, 32768\\n", ("z9000", 32, None)),
    ],
)
def test_the_gpu_of_this_machine_has_the_speed_of_the_table(
    tmp_path, monkeypatch, output, facts
):
    fake_smi(tmp_path, monkeypatch, output)
    gpu = find_gpu("local")
    assert (gpu.name, gpu.memory_gib, gpu.dense_tflops) == facts


@pytest.mark.parametrize(
    ("output", "code"),
    [("", 0), ("", 9), ("NVIDIA H200\\n", 0), ("x, y\\n", 0), (None, 0)],
)
def test_no_gpu_or_no_nvidia_smi_here_is_something_missing(
    tmp_path, monkeypatch, output, code
):
    monkeypatch.setenv("PATH", str(tmp_path))
    if output is not None:
        fake_smi(tmp_path, monkeypatch, output, code)
    with pytest.raises(MissingError) as error:
        find_gpu("local")
    assert "--gpu" in error.value.hint


@pytest.mark.parametrize(
    ("name", "figures"), [("h200", []), ("b300", ["memory", "speed"]), ("80GiB", [])]
)
def test_a_figure_nobody_compared_is_said_to_be_assumed(name, figures):
    assert [note.values["figure"] for note in doubts(find_gpu(name))] == figures
