"""How many weights a config describes, by kind."""

from dataclasses import dataclass

from chunkscope.models.families import Family
from chunkscope.models.fields import Fields
from chunkscope.models.layers import Feed, KvKind, Layer
from chunkscope.models.shape import Attention, Experts, Latent, Parameters
from chunkscope.models.states import StatefulLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Of a model that has been read: `count` adds them up."""

    fields: Fields
    family: Family
    layers: tuple[Layer, ...]
    attention: Attention
    latent: Latent | None
    stateful: StatefulLayer | None
    experts: Experts | None
    dense: int  # the width of the MLP that every token passes
    tied: bool
    limit: int | None

    def count(self, vision: int) -> Parameters:
        hidden, vocab = self.fields.number("hidden"), self.fields.number("vocab")
        # A state that is not known is taken to weigh what attention does.
        attending = [layer for layer in self.layers if layer.attends or not self.stateful]
        states = self.attention.state.layers if self.attention.state else 0
        # Gemma's second table: into it, and in each layer a gate and a way back.
        by_layer = len(self.layers) * (self.fields.maybe("hidden_size_per_layer_input") or 0)
        routed = shared = router = 0
        if self.experts:
            routed = self.experts.layers * self._experts(self.experts)
            shared = self.experts.layers * self._mlp(self.experts.shared_intermediate)
            router = self.experts.layers * self._router(self.experts)
        positions = (self.limit or 0) * hidden if self.family.learned_positions else 0
        return Parameters(
            embedding=vocab * hidden,
            head=0 if self.tied else vocab * hidden,
            attention=sum(map(self._attention, attending))
            + (states * self.stateful.weights if self.stateful else 0),
            mlp=sum(map(self._dense, self.layers)) + shared,
            experts=routed,
            other=router + positions + self._norms() + 3 * hidden * by_layer,
            vision=vision,
            by_layer=by_layer * (self.fields.maybe("vocab_size_per_layer_input") or vocab),
        )

    def _dense(self, layer: Layer) -> int:
        if layer.feed is not Feed.DENSE:
            return 0
        narrow = self.fields.says("use_double_wide_mlp") and not layer.borrows
        return self._mlp(self.dense // 2 if narrow else self.dense)

    def _mlp(self, intermediate: int) -> int:
        if not intermediate:
            return 0
        hidden, family = self.fields.number("hidden"), self.family
        biases = family.all_biases or family.mlp_biases or self.fields.says("mlp_bias")
        if family.gated:
            return 3 * hidden * intermediate + (2 * intermediate + hidden if biases else 0)
        return 2 * hidden * intermediate + (intermediate + hidden if biases else 0)

    def _experts(self, experts: Experts) -> int:
        """The routed ones of one layer; some work on tokens made smaller."""
        if latent := self.fields.maybe("moe_latent_size"):
            matrices, hidden = 3 if self.family.gated else 2, self.fields.number("hidden")
            return experts.count * matrices * latent * experts.intermediate + 2 * hidden * latent
        return experts.count * self._mlp(experts.intermediate)

    def _router(self, experts: Experts) -> int:
        hidden = self.fields.number("hidden")
        gate = hidden if self.fields.maybe("shared_expert_intermediate_size") else 0
        bias = experts.count if self.family.all_biases else 0
        corrected = self.fields.config.get("topk_method") == "noaux_tc"
        return hidden * experts.count + gate + bias + (experts.count if corrected else 0)

    def _attention(self, layer: Layer) -> int:
        a, fields, hidden = self.attention, self.fields, self.fields.number("hidden")
        if self.latent:
            return _latent_weights(a, self.latent, hidden)
        full = KvKind.FULL in layer.keeps
        head_dim = (a.full_head_dim if full else None) or a.head_dim
        kv_heads = (a.full_kv_heads if full else None) or a.kv_heads
        q, kv = a.heads * head_dim, 0 if layer.borrows else kv_heads * head_dim
        weights = 2 * hidden * q + 2 * hidden * kv + hidden * q * self.family.gated_attention
        every = self.family.all_biases or fields.says("attention_bias")
        biases = (q + 2 * kv if every or self.family.qkv_bias else 0) + (hidden if every else 0)
        sinks = a.heads if fields.kind == "gpt_oss" else 0
        return weights + biases + sinks

    def _norms(self) -> int:
        hidden, layers = self.fields.number("hidden"), len(self.layers)
        each = hidden * (2 if self.family.norm_bias else 1)
        inside = 2 * self.attention.head_dim if self.family.qk_norm else 0
        return (layers * self.family.norms_per_layer + 1) * each + layers * inside


def _latent_weights(a: Attention, latent: Latent, hidden: int) -> int:
    key = a.heads * (latent.nope_dim + latent.rope_dim)
    query = hidden * key
    if latent.q_rank:
        query = hidden * latent.q_rank + latent.q_rank + latent.q_rank * key
    down = hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
    up = latent.kv_rank * a.heads * (latent.nope_dim + latent.v_dim)
    return query + down + up + a.heads * latent.v_dim * hidden
