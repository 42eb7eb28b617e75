"""Engine arguments as people commit them, read as vLLM and lm-eval read them.

What vLLM makes of these words was asked of 0.28's own parser (test_real_flags asks it again).
"""

import pytest

from chunkscope.errors import InputError
from chunkscope.gating.read_arguments import (
    from_model_args,
    from_words,
    from_yaml,
    read_arguments,
)
from chunkscope.vllm.enums import Entry

V28 = (0, 28, 0)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("--max-num-batched-tokens 4096", {"max_num_batched_tokens": 4096}),
        ("--max-num-batched-tokens=4K", {"max_num_batched_tokens": 4096}),
        ("--max-model-len 2.5k", {"max_model_len": 2500}),
        ("--max-num-batched-tokens 2M", {"max_num_batched_tokens": 2 << 20}),
        ("--max_num_batched_tokens 64", {"max_num_batched_tokens": 64}),
        ("--max-num-seqs 8 --max-num-seqs 16", {"max_num_seqs": 16}),
        ("--no-enable-chunked-prefill", {"enable_chunked_prefill": False}),
        ("--max-model-len auto", {}),
        ("--max-model-len -1", {}),
        ("--max-model-len 8 --max-model-len auto", {}),
        ("-tp 2", {"tensor_parallel_size": 2}),
        ("--gpu-memory-utilization 0.85", {"gpu_memory_utilization": 0.85}),
        ("org/m \\\n  --max-num-seqs 8 # few\n", {"max_num_seqs": 8}),
        ("--port 1 --api-key a b --max-num-seqs 8", {"max_num_seqs": 8}),
        ("--max-num-b 256", {"max_num_batched_tokens": 256}),
        ("", {}),
    ],
)
def test_words_are_read_as_vllm_reads_them(text, values):
    read = from_words(text, V28)
    assert (read.settings.given(), read.refusals, read.entry) == (
        values,
        (),
        Entry.SERVE,
    )


@pytest.mark.parametrize(
    "script",
    [
        "cd serve && VLLM_USE_V1=1 exec vllm serve org/m --max-num-seqs 8",
        "#!/bin/sh\n# no more \\\nexport HF_HOME=/c\nvllm serve org/m \\\n  --max-num-seqs 8\n",
        "vllm serve org/m --max-num-seqs 8 2>&1 >& out| tee log",
        "{ . /v/bin/activate; vllm serve org/m --served-model-name '&x' --max-num-seqs 8; }",
        "vllm serve org/m --api-key $(cat a | cut -c 9) --max-num-seqs 8& wait",
        "vllm serve org/m > log 2>&1 --max-num-seqs 8 --port $((80 + N)) </dev/null &",
        "if ! pgrep -f 'vllm serve'; then\n  '/v/vllm' serve org/m --max-num-seqs 8 &\nfi",
        'echo "1. vllm serve" m; vllm serve org/m --max-num-seqs 8 --host $H --port=${PORT:-80}',
        'M=org/m\nexport S="8"  # few\nvllm serve "$M" --max-num-seqs ${S} &\nuntil x; do y; done',
        "A=(--max-num-seqs 8 # few\n --api-key '|x')\nseqs=org/m\nvllm serve $seqs \"${A[@]}\" ",
        "kill $(pgrep -f 'vllm serve')\necho \"vllm serve\" && (vllm serve org/m --max-num-seqs 8)",
        'podman run ghcr.io/x/vllm-openai --model org/m --api-key "a > b|" --max-num-seqs=8',
        "uvx vllm@0.28 serve org/m >\"$D\"/x --api-key 'a > b' --max-num-seqs 8; echo --seed 9",
        '"$VENV/bin/vllm" serve org/m --max-num-seqs 8',
        "python -m vllm.entrypoints.cli.main serve org/m --max-num-seqs 8",
        "vllm serve org/m --max-num-seqs 8 \\\n # --max-num-seqs 2\n--max-num-seqs 3",
        "python3 -m vllm.entrypoints.openai.api_server --model org/m --max-num-seqs 8",
        "docker run --gpus all -p 80:80 vllm/vllm-openai:v0.28.0 --model org/m --max-num-seqs 8",
    ],
)
def test_of_a_start_script_the_command_that_starts_vllm_is_read(tmp_path, script):
    path = tmp_path / "start.sh"
    path.write_text(script)
    read = read_arguments(path, V28)
    assert (read.model, read.settings.given(), read.refusals) == (
        "org/m",
        {"max_num_seqs": 8},
        (),
    )


POD = "---\napiVersion: v1\n---\napiVersion: v1\nspec: {containers: [{image: logger}, %s]}\n"
COMPOSE = "x: &x {image: a/vllm-openai, command: org/m --max-num-seqs 8}\nservices: {a: {<<: *x}%s}"
CONTAINERS = {
    "args.yaml": POD % "{image: vllm/vllm-openai, args: [org/m, --max-num-seqs, '8']},"
    " {image: a, args: [sh, -c, echo for vllm serve]}",
    "command.yml": POD
    % "{image: a, command: [vllm, serve, org/m], args: [--max-num-seqs, 8]}",
    "script.yaml": POD
    % "{image: a, command: [sh, -ec], args: ['vllm serve org/m --max-num-seqs=8']}",
    "compose.yaml": COMPOSE % "",
    "entry.yaml": "services: [{image: a, entrypoint: vllm serve, command: org/m --max-num-seqs 8}]",
    "built.yaml": "services: {a: {build: ., command: vllm serve org/m --max-num-seqs 8}}",
    "cleared.yaml": "services: {a: {image: a/vllm-openai, entrypoint: [], command: [bash, -e, -c,"
    " 'vllm serve org/m --max-num-seqs 8 | tee log']}}",
    "list.json": '{"kind": "List", "apiVersion": "v1", "items": [{"image": "vllm/vllm-openai",\n'
    '\t"args": ["org/m", "--max-num-seqs", "8"]}]}',
    "Dockerfile": 'FROM a/vllm-openai\nCMD ["org/m", \\\n "--max-num-seqs", "8"]\r\n',
    "b.Dockerfile": 'FROM --platform=$P a AS Base\nCMD x\nENTRYPOINT ["vllm", "serve"]\nCMD ["y"]\n'
    'FROM b\nCMD z\n from base as c\nRUN a\n cmd ["org/m", "--max-num-seqs", "8"]\nFROM c',
    "stages.Dockerfile": 'FROM a\nENTRYPOINT ["vllm", "serve", "a"]\nFROM b/vllm-openai\n'
    'HEALTHCHECK \\\n CMD ["curl"]\nCMD ["org/m", \\\n # so many\n\n "--max-num-seqs", "8"]',
    "c.Dockerfile": "FROM a\nENTRYPOINT exec vllm serve org/m --max-num-seqs 8",
    "d.Dockerfile": 'ARG VLLM_VERSION=v1\nARG B="a/vllm-openai:$VLLM_VERSION"\nFROM ${B} as c\n'
    'FROM c\nCMD ["org/m", "--max-num-seqs", "8"]',
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_of_a_manifest_or_dockerfile_the_container_that_runs_vllm_is_read(
    tmp_path, name
):
    (tmp_path / name).write_text(CONTAINERS[name])
    read = read_arguments(tmp_path / name, V28)
    assert (read.model, read.settings.given(), read.refusals) == (
        "org/m",
        {"max_num_seqs": 8},
        (),
    )
    assert not read.others


@pytest.mark.parametrize("words", ["--max-num-seqs 8", '["--max-num-seqs", "8"] # few'])
def test_docker_hands_words_that_are_no_list_to_a_shell(tmp_path, words):
    """So vLLM gets `/bin/sh -c '--max-num-seqs 8'`."""
    (tmp_path / "Dockerfile").write_text(
        f'ENTRYPOINT ["vllm", "serve", "m"]\nCMD {words}'
    )
    assert read_arguments(tmp_path / "Dockerfile", V28).refusals


REFUSED = (
    *("--enable-chunked-prefill=False", "--max-num-seqs 1K", "--max-model-len 2.5K"),
    *(
        "--max-model-len 8,192",
        "--gpu-memory-utilization 90%",
        "--gpu-memory-utilization nan",
    ),
    *(
        f"--max-num-seqs {'9' * 400}",
        "--max-num-seqs",
        "--max-num-seqs --enable-chunked-prefill",
    ),
    *(
        "$@",
        "--max-num 64",
        "--Max-Num-Seqs 2",
        "--bogus-flag-xyz 3",
        "--scheduling-policy x",
    ),
    *("--eplb-config x", "--help", "org/m -- stray", "--served-model-name a $MORE"),
    *(
        "vllm serve other --model org/m",
        "docker run --entrypoint sh a/vllm-openai x --model m",
    ),
    *(
        f"{x}\nvllm serve m -tp $N"
        for x in ("N=8\nread N", "if x\nthen\nN=8\nfi", "x ||\nN=8")
    ),
    *(f"{x}\nvllm serve m -tp $N" for x in ("(\nN=8\n)", "N=8\nprintf -v N 9")),
    *(
        "vllm serve m -tp $N\nN=8",
        "N=8\nvllm serve m -tp \\$N",
        "A=(-tp 8)\nvllm serve m -pp $A",
    ),
    *("vllm serve m --api-key $(a $(b $(c))) -tp 8", "vllm serve m >| log"),
)


@pytest.mark.parametrize("text", REFUSED)
def test_what_vllm_would_refuse_is_a_fault(text):
    assert from_words(text, V28).refusals


def test_yaml_is_turned_into_words_as_vllm_does():
    read = from_yaml(
        "model: org/m\nno-enable-chunked-prefill: true\nmax-model-len: 4K\nlora-modules: [a, b]\n"
        "hf-overrides: {a: 1}\nport: 8000",
        V28,
    )
    assert read.settings.given() == {
        "enable_chunked_prefill": False,
        "max_model_len": 4096,
    }
    assert (read.refusals, read.model) == ((), "org/m")
    assert read.others == {"lora_modules": "a b", "hf_overrides": "{}"}
    dropped = from_yaml("enable-chunked-prefill: false\nenforce-eager: false", V28)
    assert [refusal.argument for refusal in dropped.refusals] == [
        "enable_chunked_prefill"
    ]


def test_what_no_setting_stands_for_is_kept_as_it_is_written():
    for text, others in (
        ("--enforce-eager", {"enforce_eager": "true"}),
        ("--no-enforce-eager --dtype auto", {}),
        ("-O3", {"optimization_level": "3"}),
        ("--dtype=half -pp 8", {"dtype": "half", "pipeline_parallel_size": "8"}),
        ("--config other.yaml", {"config": "other.yaml"}),
        ("--who knows this", {"who": "knows this"}),
        ("-cc.mode=0", {"compilation_config": "-cc.mode=0"}),
        (
            "--hf-overrides.num_layers 1",
            {"hf_overrides": "--hf-overrides.num-layers 1"},
        ),
    ):
        assert from_words(text, V28).others == others, text


def test_what_is_taken_depends_on_the_version():
    new, old = "--max-model-len auto", "--swap-space 4"
    assert [bool(from_words(new, (0, n, 0)).refusals) for n in (13, 14)] == [
        True,
        False,
    ]
    assert [bool(from_words(old, (0, n, 0)).refusals) for n in (17, 18)] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("pretrained=a/b,max_model_len=4096", {"max_model_len": 4096}),
        (
            "A=b\nlm_eval -M vllm --model_args='pretrained=a b,max_num_seqs=8'",
            {"max_num_seqs": 8},
        ),
        (
            "lm-eval run -M vllm \\\n -a pretrained=a max_num_seqs=8 --tasks t",
            {"max_num_seqs": 8},
        ),
        (
            "pip install lm_eval -U\nlm_eval -t $T --max_batch_size 8 -b auto:4 --model vllm "
            "-a 'dtype=auto,\nseed=1' >$(date +%F -u)\nx --max_batch_size 9",
            {"max_num_seqs": 8},
        ),
        (
            "max_length=4096,\n max_batch_size=8",
            {"max_model_len": 4096, "max_num_seqs": 8},
        ),
        (
            '{"max_model_len": 4096, "enable_chunked_prefill": false}',
            {"max_model_len": 4096, "enable_chunked_prefill": False},
        ),
        ("enable_chunked_prefill=True", {"enable_chunked_prefill": True}),
    ],
)
def test_model_args_are_read_as_lm_eval_reads_them(text, values):
    read = from_model_args(text, V28)
    assert read.settings.given() == values
    assert read.entry is Entry.LLM
    assert read.defaults.given() == {"gpu_memory_utilization": 0.9}, (
        "the harness has its own idea"
    )


def test_model_args_that_neither_the_harness_nor_vllm_has_are_faults():
    text = "pretrained=m,dtype=auto,port=1,bogus=2,max_num_s=3,max_length=1,max_model_len=2,"
    read = from_model_args(
        f"{text}max_num_seqs=4K,device=cpu,batch_size=AUTO,max_gen_toks=9", V28
    )
    faults = [refusal.argument for refusal in read.refusals]
    assert faults == ["port", "bogus", "max_num_s", "max_length", "max_num_seqs"]
    assert (read.model, read.others) == ("m", {"max_gen_toks": "9"})
    assert [*from_model_args("lm_eval -M vllm -a dtype=auto", V28).others] == [
        "batch_size"
    ]
    assert not from_model_args(
        "for x in y; do lm_eval -M vllm -a seed=0 -b auto; done", V28
    ).others


YAML = (
    *(b"- 1", b"", b"services: {a: 1}", b"services: &a {b: *a}", b"apiVersion: v1"),
    (COMPOSE % ", b: {<<: *x}").encode(),
    b"args: [{a: 1}]",
    b"services: {a: {image: b, entrypoint: sh -c, command: vllm serve a}}",
    *(b"a: [", b"a: " + b"[" * 1000),
    b"!!python/object:os.system {}",
)
TEXT = (
    b"--x 'open",
    b"a=1,b",
    b"a=1,=2",
    b"{",
    b"\xff\xfe\x00",
    None,
    b"lm_eval --tasks t",
)
TEXT += (
    b"vllm serve a\nvllm serve b",
    b"sh -c 'vllm serve a'",
    b"vllm() { :; }\nvllm serve a",
)
TEXT += (
    b"vllm serve a \\\r\n--seed 1",
    b"alias vllm=x\nvllm serve a",
    b"lm_eval -M hf -a a=1",
)
TEXT += (
    b'FROM a/vllm-openai\nENTRYPOINT ["x"]',
    b'FROM a/vllm-openai\nENTRYPOINT vllm serve a\nCMD ["a", "--seed", "1"]',
    b'FROM a\nENTRYPOINT ["vllm", "serve"]\nFROM b\nCMD ["a"]',
    b"from vllm import LLM\nLLM('m', seed=1)",
)
TEXT += (
    b"lm_eval -M vllm -a a=1 -s $X",
    b"lm_eval -a a=1 -M vllm `x`",
    b"lm_eval -C x -M vllm",
)
TEXT += (
    b"cd b && vllm serve a; vllm serve b",
    b"lm_eval -M vllm -a a=1\nlm_eval -M vllm -a a=2",
)


@pytest.mark.parametrize(
    ("name", "data"),
    [*(("a.yaml", text) for text in YAML), *(("a.txt", text) for text in TEXT)],
)
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path, name, data):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as error:
        read_arguments(tmp_path / name, V28)
    assert name in error.value.message


def test_the_form_can_be_said_and_what_the_environment_sets_has_to_be_allowed(tmp_path):
    (tmp_path / "args.conf").write_text("max-num-seqs: 8")
    read = read_arguments(tmp_path / "args.conf", V28, "vllm-yaml")
    assert read.settings.given() == {"max_num_seqs": 8}
    for script, names in (
        (
            "# VLLM_A=1\nexport VLLM_B VLLM_LOGGING_LEVEL=INFO\nvllm serve $VLLM_M",
            ["VLLM_B"],
        ),
        ("export N='#  #' VLLM_LOGITS=1\nvllm serve m", ["VLLM_LOGITS"]),
        ("export $(cat .env)\n. /v/bin/activate; vllm serve m", ["export"]),
        (". x && source activate\nvllm serve m", ["."]),
        ("docker run --env-file x vllm/vllm-openai --model m", ["env_file"]),
        ("FROM a\nENV VLLM_C 1\nCMD vllm serve m", ["VLLM_C"]),
        ("FROM a\nCMD . /etc/x; exec vllm serve m", ["."]),
        (
            "services: {source: {build: a, command: [sh, -c, 'eval x; vllm serve m'],\n"
            " environment: {VLLM_E: 1, A: '${VLLM_F}'}}}",
            ["VLLM_E", "eval"],
        ),
        (
            "services: {a: {extends: {service: b}, build: ., command: vllm serve m}}",
            ["extends"],
        ),
        ("vllm serve m --served-model-name extends &\nVLLM_PID=$!\nwait $VLLM_PID", []),
        ("EnvironmentFile=/etc/x\nExecStart=/bin/vllm serve m", ["EnvironmentFile"]),
        ("set -a; . ./x; source y\nvllm serve m", [".", "source"]),
        ('eval "$(cat x)"; echo --seed 1 | xargs vllm serve m', ["eval", "xargs"]),
        (
            "env A=1 vllm serve m --api-key $(cat x); env $(cat x) nohup vllm bench",
            ["env"],
        ),
    ):
        (tmp_path / "start.sh").write_text(script)
        assert [*read_arguments(tmp_path / "start.sh", V28).others] == names
