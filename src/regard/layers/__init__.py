"""Every mechanism as a module, batch first."""

from regard.layers.co import (
    Aligned,
    AlignedCoAttention,
    AlternatingCoAttention,
    CoAttended,
    CoAttention,
)
from regard.layers.differential import DifferentialAttention
from regard.layers.dropout import Dropout
from regard.layers.edges import with_self_loops
from regard.layers.efficient import EfficientAttention, EfficientState
from regard.layers.graph import GraphAttention
from regard.layers.hard import (
    Choice,
    HardAttention,
    HardGumbel,
    MovingBaseline,
    reinforce_loss,
    straight_through,
)
from regard.layers.hierarchical import (
    AttentionPooling,
    HierarchicalAttention,
    HierarchicallyAttended,
)
from regard.layers.latent import LatentAttention
from regard.layers.local import LocalAttention, PredictedCenter
from regard.layers.memory import MemoryAttention, MemoryState
from regard.layers.multi_dimensional import MultiDimensionalAttention, SourceToToken
from regard.layers.multi_head import MultiHeadAttention
from regard.layers.pooling import PoolingAttention
from regard.layers.position import ALiBi, Learned, Position, PositionalEncoding, RelativeBias
from regard.layers.role import AttentionRole
from regard.layers.rotary import LinearScaling, NTKScaling, Rotary, YaRN
from regard.layers.textbook import Attention, AttentionWeight, TimeAttention, WeightSum
from regard.layers.torch_multihead import TorchMultiheadAttention
from regard.layers.transformer import (
    DecoderLayer,
    DecoderState,
    EncoderLayer,
    FeedForward,
    PostNorm,
    PreNorm,
)

__all__ = [
    "ALiBi",
    "Aligned",
    "AlignedCoAttention",
    "AlternatingCoAttention",
    "Attention",
    "AttentionPooling",
    "AttentionRole",
    "AttentionWeight",
    "Choice",
    "CoAttended",
    "CoAttention",
    "DecoderLayer",
    "DecoderState",
    "DifferentialAttention",
    "Dropout",
    "EfficientAttention",
    "EfficientState",
    "EncoderLayer",
    "FeedForward",
    "GraphAttention",
    "HardAttention",
    "HardGumbel",
    "HierarchicalAttention",
    "HierarchicallyAttended",
    "LatentAttention",
    "Learned",
    "LinearScaling",
    "LocalAttention",
    "MemoryAttention",
    "MemoryState",
    "MovingBaseline",
    "MultiDimensionalAttention",
    "MultiHeadAttention",
    "NTKScaling",
    "PoolingAttention",
    "Position",
    "PositionalEncoding",
    "PostNorm",
    "PreNorm",
    "PredictedCenter",
    "RelativeBias",
    "Rotary",
    "SourceToToken",
    "TimeAttention",
    "TorchMultiheadAttention",
    "WeightSum",
    "YaRN",
    "reinforce_loss",
    "straight_through",
    "with_self_loops",
]
