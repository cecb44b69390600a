"""Real speculative decoding: what a replay predicts, done with the models."""

from traces.openmp import wait_passively

wait_passively()  # before torch is loaded

from simkit.live.decoders import TimedDecoder  # noqa: E402
from simkit.live.settings import DecoderSettings, Step  # noqa: E402

__all__ = ["DecoderSettings", "Step", "TimedDecoder"]
