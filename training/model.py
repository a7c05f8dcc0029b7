"""A GPT-like language model, and its parameters as one flat vector.

Causal self-attention, GELU, norms before each branch, learned positions, no biases; the output head is the token
embedding itself (tied), so it stands in the flat vector once.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.config import TrainingConfig
from training.errors import ModelNotSupported
from training.fixed_point import Float32


class Block(nn.Module):
    """One layer: attention and a two-layer perceptron, each added to the residual stream. [B, T, D] -> [B, T, D]."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.attention_in = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width, bias=False)
        self.mlp_in = nn.Linear(width, 4 * width, bias=False)
        self.mlp_out = nn.Linear(4 * width, width, bias=False)

    def forward(self, stream: Tensor) -> Tensor:
        batch, length, width = stream.shape
        joint = self.attention_in(self.attention_norm(stream))  # [B, T, 3 D]
        joint = joint.view(batch, length, 3, self.num_heads, width // self.num_heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4)  # each [B, heads, T, D / heads]
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        hidden = functional.gelu(self.mlp_in(self.mlp_norm(stream)), approximate="tanh")
        result: Tensor = stream + self.mlp_out(hidden)
        return result


class LanguageModel(nn.Module):
    """Tokens [B, T] -> mean cross-entropy of the tokens after them, nats per token (a scalar)."""

    def __init__(self, config: TrainingConfig) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(len(config.alphabet), config.width)
        self.position_embedding = nn.Embedding(config.block_length, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.num_heads) for _ in range(config.num_layers))
        self.final_norm = nn.LayerNorm(config.width, bias=False)

    def forward(self, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        logits_BTV = self.logits(inputs_BT).float()
        return functional.cross_entropy(logits_BTV.view(-1, logits_BTV.shape[-1]), targets_BT.reshape(-1))

    def logits(self, inputs_BT: Tensor) -> Tensor:
        """Tokens [B, T] -> scores of the token after each, [B, T, V]."""
        positions = self.position_embedding.weight[: inputs_BT.shape[1]]
        stream = self.token_embedding(inputs_BT) + positions
        for block in self.blocks:
            stream = block(stream)
        return functional.linear(self.final_norm(stream), self.token_embedding.weight)


def parameter_layout(module: nn.Module) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """(name, shape) of each parameter of `module`, tied ones once.

    Raises: ModelNotSupported for what averaging of parameters would leave behind: buffers (such as running
    statistics), frozen parameters, and parameters that are not float32.
    """
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        raise ModelNotSupported(f"the model has buffers, which the shared state does not carry: {', '.join(buffers)}")
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise ModelNotSupported(f"parameter {name} is {parameter.dtype}; the shared state carries float32 masters")
        if not parameter.requires_grad:
            raise ModelNotSupported(f"parameter {name} is frozen; every parameter of the shared state is trained")
    return tuple((name, tuple(parameter.shape)) for name, parameter in module.named_parameters())


class FlatModel:
    """A model whose parameters and gradients are views into two flat float32 vectors [P].

    One vector operation then updates, clips or reads the whole model, in the order of `TrainingConfig.layout`.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        layout = parameter_layout(module)
        self.module = module.to(device)
        num_parameters = sum(parameter.numel() for parameter in self.module.parameters())
        self.parameters_P = torch.zeros(num_parameters, device=device)
        self.gradients_P = torch.zeros(num_parameters, device=device)
        self.decayed_P = torch.zeros(num_parameters, device=device)
        """1 where weight decay applies (matrices and embeddings), else 0."""
        start = 0
        for (_, shape), parameter in zip(layout, self.module.parameters(), strict=True):
            end = start + parameter.numel()
            parameter.data = self.parameters_P[start:end].view(shape)
            parameter.grad = self.gradients_P[start:end].view(shape)
            self.decayed_P[start:end] = float(len(shape) > 1)
            start = end

    def set_parameters(self, values_P: Float32) -> None:
        """Copy float32 [P] into the model: the master copy is the only one, so nothing else needs updating."""
        self.parameters_P.copy_(torch.from_numpy(values_P))


def build_model(config: TrainingConfig, device: torch.device) -> FlatModel:
    """The model of a job, parameters all zero until set.

    Raises: ModelNotSupported when the module and the layout in the configuration do not agree.
    """
    module = LanguageModel(config)
    if parameter_layout(module) != config.layout:
        raise ModelNotSupported("the model's parameters are not those of the configuration's layout")
    return FlatModel(module, device)
