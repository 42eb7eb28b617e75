"""Well-known models, so that `--model llama-3.1-8b` needs no network.

Each entry is the part of the published config.json that decides memory and speed. `published` is
the model's parameter count; the tests compare it with what is counted from the config. Both were
written from memory, without a network: the hub was not read. For CORROBORATED the count was found
quoted in public repositories; for the others config and count merely agree with each other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    hub_ids: tuple[str, ...]
    published: int
    config: Mapping[str, Any]


def _config(
    architecture: str,
    model_type: str,
    shape: tuple[int, int, int, int, int],
    vocab: int,
    limit: int,
    **more: Any,
) -> dict[str, Any]:
    """`shape`: layers, hidden, intermediate, heads, KV heads."""
    layers, hidden, intermediate, heads, kv_heads = shape
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "max_position_embeddings": limit,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **more,
    }


Row = tuple[str, KnownModel]
Shape = tuple[int, int, int, int, int]


def _llama() -> Iterator[Row]:
    rope = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope32 = {**rope, "factor": 32.0}
    big = {"rope_scaling": rope, "rope_theta": 500000.0}
    small = {"rope_scaling": rope32, "rope_theta": 500000.0, "tie_word_embeddings": True}
    rows: tuple[tuple[str, tuple[str, ...], int, Shape, int, int, dict[str, Any]], ...] = (
        ("llama-2-7b", ("Llama-2-7b-hf", "Llama-2-7b-chat-hf"), 6_738_415_616,
         (32, 4096, 11008, 32, 32), 32000, 4096, {}),
        ("llama-3-8b", ("Meta-Llama-3-8B", "Meta-Llama-3-8B-Instruct"), 8_030_261_248,
         (32, 4096, 14336, 32, 8), 128256, 8192, {"rope_theta": 500000.0}),
        ("llama-3.1-8b", ("Llama-3.1-8B", "Llama-3.1-8B-Instruct", "Meta-Llama-3.1-8B",
                          "Meta-Llama-3.1-8B-Instruct"), 8_030_261_248,
         (32, 4096, 14336, 32, 8), 128256, 131072, big),
        ("llama-3.1-70b", ("Llama-3.1-70B", "Llama-3.1-70B-Instruct", "Meta-Llama-3.1-70B",
                           "Meta-Llama-3.1-70B-Instruct"), 70_553_706_496,
         (80, 8192, 28672, 64, 8), 128256, 131072, big),
        ("llama-3.1-405b", ("Llama-3.1-405B", "Llama-3.1-405B-Instruct"), 405_853_388_800,
         (126, 16384, 53248, 128, 8), 128256, 131072, big),
        ("llama-3.2-1b", ("Llama-3.2-1B", "Llama-3.2-1B-Instruct"), 1_235_814_400,
         (16, 2048, 8192, 32, 8), 128256, 131072, {**small, "head_dim": 64}),
        ("llama-3.2-3b", ("Llama-3.2-3B", "Llama-3.2-3B-Instruct"), 3_212_749_824,
         (28, 3072, 8192, 24, 8), 128256, 131072, {**small, "head_dim": 128}),
        ("llama-3.3-70b", ("Llama-3.3-70B-Instruct",), 70_553_706_496,
         (80, 8192, 28672, 64, 8), 128256, 131072, big),
    )  # fmt: skip
    for name, ids, total, shape, vocab, limit, more in rows:
        hub_ids = tuple(f"meta-llama/{x}" for x in ids)
        config = _config("LlamaForCausalLM", "llama", shape, vocab, limit, **more)
        yield name, KnownModel(hub_ids=hub_ids, published=total, config=config)


def _qwen25() -> Iterator[Row]:
    """The base models of 7B and up take 131072 tokens, the tuned ones 32768."""
    rows: tuple[tuple[str, int, Shape, int, bool, int], ...] = (
        ("0.5B", 494_032_768, (24, 896, 4864, 14, 2), 151936, True, 32768),
        ("1.5B", 1_543_714_304, (28, 1536, 8960, 12, 2), 151936, True, 131072),
        ("3B", 3_085_938_688, (36, 2048, 11008, 16, 2), 151936, True, 32768),
        ("7B", 7_615_616_512, (28, 3584, 18944, 28, 4), 152064, False, 131072),
        ("14B", 14_770_033_664, (48, 5120, 13824, 40, 8), 152064, False, 131072),
        ("32B", 32_763_876_352, (64, 5120, 27648, 40, 8), 152064, False, 131072),
        ("72B", 72_706_203_648, (80, 8192, 29568, 64, 8), 152064, False, 131072),
    )
    for size, total, shape, vocab, tied, limit in rows:
        for tail, longest in (("", limit), ("-Instruct", 32768)):
            config = _config(
                "Qwen2ForCausalLM", "qwen2", shape, vocab, longest,
                tie_word_embeddings=tied, rope_theta=1000000.0,
            )  # fmt: skip
            name = f"Qwen2.5-{size}{tail}"
            yield (
                name.lower(),
                KnownModel(hub_ids=(f"Qwen/{name}",), published=total, config=config),
            )


def _qwen3() -> Iterator[Row]:
    rows: tuple[tuple[str, int, Shape, bool], ...] = (
        ("0.6B", 596_049_920, (28, 1024, 3072, 16, 8), True),
        ("1.7B", 1_720_574_976, (28, 2048, 6144, 16, 8), True),
        ("4B", 4_022_468_096, (36, 2560, 9728, 32, 8), True),
        ("8B", 8_190_735_360, (36, 4096, 12288, 32, 8), False),
        ("14B", 14_768_307_200, (40, 5120, 17408, 40, 8), False),
        ("32B", 32_762_123_264, (64, 5120, 25600, 64, 8), False),
    )
    for size, total, shape, tied in rows:
        config = _config(
            "Qwen3ForCausalLM", "qwen3", shape, 151936, 40960,
            head_dim=128, tie_word_embeddings=tied, rope_theta=1000000.0,
        )  # fmt: skip
        yield (
            f"qwen3-{size.lower()}",
            KnownModel(hub_ids=(f"Qwen/Qwen3-{size}",), published=total, config=config),
        )
    sparse: tuple[tuple[str, int, Shape, int], ...] = (
        ("30B-A3B", 30_532_122_624, (48, 2048, 6144, 32, 4), 768),
        ("235B-A22B", 235_093_634_560, (94, 4096, 12288, 64, 4), 1536),
    )
    for size, total, shape, moe in sparse:
        config = _config(
            "Qwen3MoeForCausalLM", "qwen3_moe", shape, 151936, 40960,
            head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=moe,
            decoder_sparse_step=1, mlp_only_layers=[], rope_theta=1000000.0,
        )  # fmt: skip
        yield (
            f"qwen3-{size.lower()}",
            KnownModel(hub_ids=(f"Qwen/Qwen3-{size}",), published=total, config=config),
        )


def _mistral() -> Iterator[Row]:
    yield "mistral-7b-v0.3", KnownModel(
        hub_ids=("mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-Instruct-v0.3"),
        published=7_248_023_552,
        config=_config(
            "MistralForCausalLM", "mistral", (32, 4096, 14336, 32, 8), 32768, 32768,
            sliding_window=None, rope_theta=1000000.0,
        ),
    )  # fmt: skip
    yield "mistral-nemo-12b", KnownModel(
        hub_ids=("mistralai/Mistral-Nemo-Instruct-2407", "mistralai/Mistral-Nemo-Base-2407"),
        published=12_247_782_400,
        config=_config(
            "MistralForCausalLM", "mistral", (40, 5120, 14336, 32, 8), 131072, 131072,
            head_dim=128, sliding_window=None, rope_theta=1000000.0,
        ),
    )  # fmt: skip
    yield "mistral-small-24b", KnownModel(
        hub_ids=("mistralai/Mistral-Small-24B-Instruct-2501",),
        published=23_572_403_200,
        config=_config(
            "MistralForCausalLM", "mistral", (40, 5120, 32768, 32, 8), 131072, 32768,
            head_dim=128, sliding_window=None, rope_theta=100000000.0,
        ),
    )  # fmt: skip
    yield "mixtral-8x7b", KnownModel(
        hub_ids=("mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
        published=46_702_792_704,
        config=_config(
            "MixtralForCausalLM", "mixtral", (32, 4096, 14336, 32, 8), 32000, 32768,
            num_local_experts=8, num_experts_per_tok=2, sliding_window=None, rope_theta=1000000.0,
        ),
    )  # fmt: skip


def _gemma() -> Iterator[Row]:
    rows: tuple[tuple[str, int, Shape, int], ...] = (
        ("2b", 2_614_341_888, (26, 2304, 9216, 8, 4), 256),
        ("9b", 9_241_705_984, (42, 3584, 14336, 16, 8), 256),
        ("27b", 27_227_128_320, (46, 4608, 36864, 32, 16), 128),
    )
    for size, total, shape, head_dim in rows:
        config = _config(
            "Gemma2ForCausalLM", "gemma2", shape, 256000, 8192,
            head_dim=head_dim, sliding_window=4096, tie_word_embeddings=True,
        )  # fmt: skip
        ids = (f"google/gemma-2-{size}", f"google/gemma-2-{size}-it")
        yield f"gemma-2-{size}", KnownModel(hub_ids=ids, published=total, config=config)
    yield "gemma-3-1b", KnownModel(
        hub_ids=("google/gemma-3-1b-it", "google/gemma-3-1b-pt"),
        published=999_885_952,
        config=_config(
            "Gemma3ForCausalLM", "gemma3_text", (26, 1152, 6912, 4, 1), 262144, 32768,
            head_dim=256, sliding_window=512, sliding_window_pattern=6, tie_word_embeddings=True,
        ),
    )  # fmt: skip
    sighted: tuple[tuple[str, int, Shape, int], ...] = (
        ("4b", 4_300_079_472, (34, 2560, 10240, 8, 4), 256),
        ("12b", 12_187_325_040, (48, 3840, 15360, 16, 8), 256),
        ("27b", 27_432_406_640, (62, 5376, 21504, 32, 16), 128),
    )
    for size, total, shape, head_dim in sighted:
        text = _config(
            "Gemma3ForCausalLM", "gemma3_text", shape, 262208, 131072,
            head_dim=head_dim, sliding_window=1024, sliding_window_pattern=6,
            tie_word_embeddings=True,
        )  # fmt: skip
        del text["architectures"]
        tower = {"model_type": "siglip_vision_model", "hidden_size": 1152}
        tower |= {"intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16}
        config = {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "text_config": text,
            "vision_config": {**tower, "image_size": 896, "patch_size": 14},
            "mm_tokens_per_image": 256,
            "torch_dtype": "bfloat16",
        }
        ids = (f"google/gemma-3-{size}-it", f"google/gemma-3-{size}-pt")
        yield f"gemma-3-{size}", KnownModel(hub_ids=ids, published=total, config=config)


def _phi() -> Iterator[Row]:
    yield (
        "phi-3-mini-4k",
        KnownModel(
            hub_ids=("microsoft/Phi-3-mini-4k-instruct",),
            published=3_821_079_552,
            config=_config("Phi3ForCausalLM", "phi3", (32, 3072, 8192, 32, 32), 32064, 4096),
        ),
    )
    yield (
        "phi-4",
        KnownModel(
            hub_ids=("microsoft/phi-4",),
            published=14_659_507_200,
            config=_config("Phi3ForCausalLM", "phi3", (40, 5120, 17920, 40, 10), 100352, 16384),
        ),
    )


def _deepseek() -> Iterator[Row]:
    latent = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    latent |= {"v_head_dim": 128}
    yarn = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}
    yarn |= {"beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}
    yield "deepseek-v2-lite", KnownModel(
        hub_ids=("deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V2-Lite-Chat"),
        published=15_706_484_224,
        config=_config(
            "DeepseekV2ForCausalLM", "deepseek_v2", (27, 2048, 10944, 16, 16), 102400, 163840,
            **latent, q_lora_rank=None, n_routed_experts=64, n_shared_experts=2,
            num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1,
            moe_layer_freq=1, rope_scaling=yarn,
        ),
    )  # fmt: skip
    yield "deepseek-v3", KnownModel(
        # The count of the main model; the checkpoint adds a multi-token-prediction layer.
        hub_ids=("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3-0324",
                 "deepseek-ai/DeepSeek-R1"),
        published=671_026_419_200,
        config=_config(
            "DeepseekV3ForCausalLM", "deepseek_v3", (61, 7168, 18432, 128, 128), 129280, 163840,
            **latent, q_lora_rank=1536, n_routed_experts=256, n_shared_experts=1,
            num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=3,
            moe_layer_freq=1, topk_method="noaux_tc", n_group=8, topk_group=4, rope_scaling=yarn,
            quantization_config={
                "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                "weight_block_size": [128, 128],
            },
        ),
    )  # fmt: skip


def _gpt() -> Iterator[Row]:
    yield "gpt2", KnownModel(
        hub_ids=("openai-community/gpt2", "gpt2"),
        published=124_439_808,
        config={
            "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 12,
            "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257,
        },
    )  # fmt: skip
    for size, layers, experts, total in (
        ("20b", 24, 32, 20_914_757_184),
        ("120b", 36, 128, 116_829_156_672),
    ):
        config = _config(
            "GptOssForCausalLM", "gpt_oss", (layers, 2880, 2880, 64, 8), 201088, 131072,
            head_dim=64, num_local_experts=experts, num_experts_per_tok=4, attention_bias=True,
            sliding_window=128, layer_types=["sliding_attention", "full_attention"] * (layers // 2),
            rope_scaling={
                "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
                "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            },
            quantization_config={"quant_method": "mxfp4"},
        )  # fmt: skip
        yield (
            f"gpt-oss-{size}",
            KnownModel(hub_ids=(f"openai/gpt-oss-{size}",), published=total, config=config),
        )


CORROBORATED = frozenset({
    "llama-3-8b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.3-70b", "qwen2.5-3b-instruct",
    "qwen2.5-7b", "qwen2.5-7b-instruct", "qwen2.5-32b-instruct", "qwen3-0.6b", "qwen3-8b",
    "qwen3-30b-a3b", "mistral-nemo-12b", "mixtral-8x7b", "gemma-2-2b", "gemma-2-9b", "gemma-2-27b",
    "gemma-3-12b", "gemma-3-27b", "phi-3-mini-4k", "phi-4", "deepseek-v2-lite", "deepseek-v3",
    "gpt-oss-20b", "gpt-oss-120b",
})  # fmt: skip
MODELS: dict[str, KnownModel] = dict(
    row
    for family in (_llama, _qwen25, _qwen3, _mistral, _gemma, _phi, _deepseek, _gpt)
    for row in family()
)
